{{/*
Names and labels. The annotation platform/operator in Chart.yaml names the operator: .Chart.Name is the alias inside the
umbrella chart, and a value could be overridden.
*/}}

{{/* Name of the operator in the cluster (field manager, managed-by label), independent of the release name. */}}
{{- define "operator.process" -}}
{{- index .Chart.Annotations "platform/operator" -}}-operator
{{- end -}}

{{- define "operator.name" -}}
{{- default (include "operator.process" .) .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of the chart's objects, at most 52 characters, so that prefixes and suffixes such as -metrics fit. */}}
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

{{/* A digest takes precedence over a tag. */}}
{{- define "operator.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Image of sidecar and init containers: agentImage, or by default the operator's image, which contains these programs. */}}
{{- define "operator.agentImage" -}}
{{- default (include "operator.image" .) .Values.agentImage -}}
{{- end -}}
