{{/*
Alerts and recording rules of files/alerts.yaml, which dashboards/rules generates. This template inserts thresholds and
base URLs. Links are absolute: runbook_url leads to the runbook of the release by default, and without a base URL of Grafana
there is no dashboard_url. An unknown name in `disabled` is an error: else an alert that was renamed would be enabled again unnoticed.
*/}}
{{- define "operator.alerts" -}}
{{- with .Values.metrics.prometheusRule }}
{{- if .enabled }}
{{- $chosen := . }}
{{- $runbooks := .runbooksUrl }}
{{- if and (not $runbooks) $.Chart.Home }}
{{- $runbooks = printf "%s/blob/v%s/" (trimSuffix "/" $.Chart.Home) $.Chart.Version }}
{{- end }}
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
{{- if $chosen.dashboardsUrl }}
{{- $_ := set .annotations "dashboard_url" (print (trimSuffix "/" $chosen.dashboardsUrl) .annotations.dashboard_url) }}
{{- else }}
{{- $_ := unset .annotations "dashboard_url" }}
{{- end }}
{{- $_ := set .annotations "runbook_url" (print $runbooks .annotations.runbook_url) }}
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
{{- fail (printf "metrics.prometheusRule.disabled: unknown alert %s. Remove it, or correct it to a name in files/alerts.yaml of the chart." .) }}
{{- end }}
{{- end }}
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {{ include "operator.fullname" $ | quote }}
  namespace: {{ include "operator.namespace" $ | quote }}
  labels: {{- merge (include "operator.labels" $ | fromYaml) .labels | toYaml | nindent 4 }}
spec:
  groups: {{- toYaml $groups | nindent 4 }}
{{- end }}
{{- end }}
{{- end -}}
