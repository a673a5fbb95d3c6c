{{/*
Dashboards of files/dashboards, for a Grafana whose sidecar looks for ConfigMaps. Each has its uid from its file: that of the
operators' own is in every chart, and is brought by the outermost one, so that no uid comes twice in a release; from two
releases the sidecar takes it once, for the file's name is the same.
*/}}
{{- define "operator.dashboards" -}}
{{- with .Values.metrics.dashboards }}
{{- if .enabled }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "operator.fullname" $ }}-dashboards
  namespace: {{ $.Release.Namespace | quote }}
  labels: {{- merge (include "operator.labels" $ | fromYaml) .labels | toYaml | nindent 4 }}
  {{- with .annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
data:
  {{- range $path, $content := $.Files.Glob "files/dashboards/*.json" }}
  {{- $name := base $path }}
  {{- if or $.Chart.IsRoot (ne $name "platform-operators.json") }}
  {{ $name }}: {{ $content | toString | trim | toJson }}
  {{- end }}
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}
