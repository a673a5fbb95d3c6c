{{/*
Validation of values that the schema cannot express, such as contradictions. Each message names the value to change.
*/}}
{{- define "operator.validate" -}}
{{- if not .Values.image.repository -}}
{{- $value := printf "%simage.repository" (ternary "" (print .Chart.Name ".") .Chart.IsRoot) -}}
{{- fail (printf "image.repository of %s is empty, because a chart of a source checkout names no published image. Set %s to an image that the nodes can pull (make docker-build docker-push IMG=...), or install the chart of a release." (include "operator.process" .) $value) -}}
{{- end -}}
{{- with .Values.leaderElection -}}
{{- if ge (int64 .renewDeadline) (int64 .leaseDuration) -}}
{{- fail (printf "leaderElection.renewDeadline (%d) must be less than leaderElection.leaseDuration (%d), so that a leader stops before another replica takes over. Decrease renewDeadline or increase leaseDuration." (int64 .renewDeadline) (int64 .leaseDuration)) -}}
{{- end -}}
{{- if gt (mul 2 (int64 .retryPeriod)) (int64 .renewDeadline) -}}
{{- fail (printf "leaderElection.retryPeriod (%d) must be at most half of leaderElection.renewDeadline (%d), so that a failed renewal is retried in time. Decrease retryPeriod or increase renewDeadline." (int64 .retryPeriod) (int64 .renewDeadline)) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.webhook.enabled .Values.metrics.enabled (eq (int64 .Values.webhook.port) (int64 .Values.metrics.port)) -}}
{{- fail (printf "webhook.port and metrics.port are both %d. Set one of them to a different port." (int64 .Values.webhook.port)) -}}
{{- end -}}
{{- range $name, $server := dict "webhook" .Values.webhook "metrics" .Values.metrics -}}
{{- if and $server.enabled (eq (int64 $server.port) (int64 $.Values.probePort)) -}}
{{- fail (printf "%s.port and probePort are both %d. Set one of them to a different port." $name (int64 $server.port)) -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.certificates.source "secret") (not .Values.certificates.secretName) -}}
{{- fail "certificates.source is secret, but certificates.secretName is empty. Set certificates.secretName to a Secret of type kubernetes.io/tls in the release's namespace, or set certificates.source=self." -}}
{{- end -}}
{{- if eq (get .Values.rbac "selfSigned" | toString) "false" -}}
{{- fail "rbac.selfSigned was renamed. Remove it, and set rbac.writeSecrets=false, which also ends the connection Secrets of clients." -}}
{{- end -}}
{{- if eq (get .Values.crds "keep" | toString) "false" -}}
{{- fail "crds.keep=false is no longer supported: uninstalling would delete all resources of these kinds and their data. Remove the value. To delete the CRDs after `helm uninstall`, use `kubectl delete crd`." -}}
{{- end -}}
{{- end -}}
