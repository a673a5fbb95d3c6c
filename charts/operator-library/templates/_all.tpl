{{/* Everything an operator's chart renders, in the order in which it reads best; Helm orders what it installs. */}}
{{- define "operator.all" -}}
{{- include "operator.refuse" . -}}
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
