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

{{/* Namespace of the chart's objects. */}}
{{- define "operator.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
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
{{- $name := include "operator.mirrored" (list $ .repository) -}}
{{- if .digest -}}
{{ $name }}@{{ .digest }}
{{- else -}}
{{ $name }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Image of sidecar and init containers: agentImage, or by default the operator's image, which contains these programs. */}}
{{- define "operator.agentImage" -}}
{{- with .Values.agentImage -}}
{{ include "operator.mirrored" (list $ .) }}
{{- else -}}
{{ include "operator.image" . }}
{{- end -}}
{{- end -}}

{{/*
Image with its host replaced by global.imageRegistry. Arguments, as a list: the root, and the image. As container runtimes
read it, an image without a host is one of docker.io, where a name of one part is below library/.
*/}}
{{- define "operator.mirrored" -}}
{{- $registry := (index . 0).Values.global.imageRegistry | trimSuffix "/" -}}
{{- $image := index . 1 -}}
{{- if or (not $registry) (hasPrefix (print $registry "/") $image) -}}
{{ $image }}
{{- else -}}
{{- $host := regexFind "^([^/]*[.:][^/]*|localhost)/" $image -}}
{{- $path := trimPrefix $host $image -}}
{{- $official := and (has $host (list "" "docker.io/" "index.docker.io/")) (not (contains "/" $path)) -}}
{{ $registry }}/{{ ternary "library/" "" $official }}{{ $path }}
{{- end -}}
{{- end -}}
