{{/*
Alerts and recording rules of files/alerts.yaml, which dashboards/rules generates: thresholds and links are filled in here. An
alert that is left out is one that there is: a name that was changed would otherwise be back, unheard.
*/}}
{{- define "operator.alerts" -}}
{{- with .Values.metrics.prometheusRule }}
{{- if .enabled }}
{{- $chosen := . }}
{{- $text := $.Files.Get "files/alerts.yaml" }}
{{- range $name, $number := .thresholds }}
{{- $text = replace (printf "${%s}" $name) (toString $number) $text }}
{{- end }}
{{- $known := list }}
{{- $groups := list }}
{{- range (fromYaml $text).groups }}
{{- $rules := list }}
{{- range .rules }}
{{- $known = append $known .alert }}
{{- if .alert }}
{{- $_ := set .annotations "dashboard_url" (print (trimSuffix "/" $chosen.dashboardsUrl) .annotations.dashboard_url) }}
{{- $_ := set .annotations "runbook_url" (print $chosen.runbooksUrl .annotations.runbook_url) }}
{{- $_ := set . "labels" (merge .labels $chosen.alertLabels) }}
{{- end }}
{{- if not (has .alert $chosen.disabled) }}
{{- $rules = append $rules . }}
{{- end }}
{{- end }}
{{- $groups = append $groups (dict "name" .name "rules" $rules) }}
{{- end }}
{{- range .disabled }}
{{- if not (has . $known) }}
{{- fail (printf "metrics.prometheusRule.disabled names %s, and there is no such alert. Look at files/alerts.yaml of the chart." .) }}
{{- end }}
{{- end }}
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {{ include "operator.fullname" $ | quote }}
  namespace: {{ $.Release.Namespace | quote }}
  labels: {{- merge (include "operator.labels" $ | fromYaml) .labels | toYaml | nindent 4 }}
spec:
  groups: {{- toYaml $groups | nindent 4 }}
{{- end }}
{{- end }}
{{- end -}}
