{{/*
ConfigMap with the dashboards of files/dashboards, for Grafana's sidecar. Every chart contains the operators' dashboard; only
the root chart renders it, so that its uid is unique in a release. If two releases render it, the sidecar loads it once,
because the file name is the same.
*/}}
{{- define "operator.dashboards" -}}
{{- with .Values.metrics.dashboards }}
{{- if .enabled }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "operator.fullname" $ }}-dashboards
  namespace: {{ include "operator.namespace" $ | quote }}
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
