{{/* All objects of an operator's chart. Helm sorts them by kind when it installs them. */}}
{{- define "operator.all" -}}
{{- include "operator.validate" . -}}
{{- include "operator.common" (list . (include "operator.objects" .)) -}}
{{- end -}}

{{/*
Objects with global.commonLabels and global.commonAnnotations, so that no template can omit them. Those of the object take
precedence. Arguments, as a list: the root, and the objects as YAML documents.
*/}}
{{- define "operator.common" -}}
{{- $global := (index . 0).Values.global -}}
{{- range regexSplit "(?m)^---$" (index . 1) -1 }}
{{- with $object := fromYaml . }}
{{- with .Error }}{{ fail . }}{{ end }}
{{- range $key, $common := dict "labels" $global.commonLabels "annotations" $global.commonAnnotations }}
{{- if $common }}{{ $_ := set $object.metadata $key (merge (default dict (get $object.metadata $key)) $common) }}{{ end }}
{{- end }}
---
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "operator.objects" -}}
{{ include "operator.crds" . }}
---
{{ include "operator.serviceAccount" . }}
---
{{ include "operator.access" . }}
---
{{ include "operator.ownAccess" . }}
---
{{ include "operator.clusterAccess" . }}
---
{{ include "operator.flowSchema" . }}
---
{{ include "operator.userRoles" . }}
---
{{ include "operator.deployment" . }}
---
{{ include "operator.disruptionBudget" . }}
---
{{ include "operator.certificates" . }}
---
{{ include "operator.webhook" . }}
---
{{- if .Values.policy.deletionProtection }}
{{ include "operator.deletionProtection" . }}
{{- end }}
---
{{ include "operator.metrics" . }}
---
{{ include "operator.dashboards" . }}
---
{{ include "operator.alerts" . }}
---
{{ include "operator.networkPolicy" . }}
---
{{ include "operator.check" . }}
{{- end -}}
