{{/* All objects of an operator's chart. Helm sorts them by kind when it installs them. */}}
{{- define "operator.all" -}}
{{- include "operator.validate" . -}}
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
{{ include "operator.deletionProtection" . }}
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
