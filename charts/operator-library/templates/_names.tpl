{{/*
Names and labels. An operator's chart says which operator it is in Chart.yaml (annotation platform/operator):
.Chart.Name would be the alias inside the umbrella chart, and a value could be changed.
*/}}

{{/* The name the operator goes by in the cluster: field manager and managed-by label, whatever the release is called. */}}
{{- define "operator.process" -}}
{{- index .Chart.Annotations "platform/operator" -}}-operator
{{- end -}}

{{- define "operator.name" -}}
{{- default (include "operator.process" .) .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of its objects; 52 characters leave room for beginnings and endings such as -metrics. */}}
{{- define "operator.fullname" -}}
{{- $name := include "operator.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- default $full .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "operator.serviceAccountName" -}}
{{- $own := ternary (include "operator.fullname" .) "default" .Values.serviceAccount.create -}}
{{- default $own .Values.serviceAccount.name -}}
{{- end -}}

{{- define "operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "operator.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "operator.labels" -}}
{{ include "operator.selectorLabels" . }}
app.kubernetes.io/component: operator
app.kubernetes.io/part-of: platform
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" (include "operator.process" .) .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* A digest is what runs, whatever the tag says. */}}
{{- define "operator.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The sidecar that reads metrics is a mode of the operator's own program, unless a value names another image. */}}
{{- define "operator.agentImage" -}}
{{- default (include "operator.image" .) .Values.agentImage -}}
{{- end -}}
