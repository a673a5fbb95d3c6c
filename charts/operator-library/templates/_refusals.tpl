{{/*
Values that are each well-formed and contradict each other: refused before anything is made, with what mends it.
*/}}
{{- define "operator.refuse" -}}
{{- with .Values.leaderElection -}}
{{- if ge (int64 .renewDeadline) (int64 .leaseDuration) -}}
{{- fail (printf "leaderElection.renewDeadline (%d) must be below leaderElection.leaseDuration (%d): a leader stops before another may begin. Lower the first, or raise the second." (int64 .renewDeadline) (int64 .leaseDuration)) -}}
{{- end -}}
{{- if gt (mul 2 (int64 .retryPeriod)) (int64 .renewDeadline) -}}
{{- fail (printf "leaderElection.retryPeriod (%d) must be at most half of leaderElection.renewDeadline (%d): a renewal that fails once is tried again. Lower the first, or raise the second." (int64 .retryPeriod) (int64 .renewDeadline)) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.webhook.enabled .Values.metrics.enabled (eq (int64 .Values.webhook.port) (int64 .Values.metrics.port)) -}}
{{- fail (printf "webhook.port and metrics.port are both %d, and one port serves one of them. Change one." (int64 .Values.webhook.port)) -}}
{{- end -}}
{{- if and (eq .Values.certificates.source "secret") (not .Values.certificates.secretName) -}}
{{- fail "certificates.source is secret, but certificates.secretName is empty. Name your Secret of type kubernetes.io/tls in the release's namespace, or let certificates.source be self." -}}
{{- end -}}
{{- if eq (get .Values.crds "keep" | toString) "false" -}}
{{- fail "crds.keep=false is no longer taken: uninstalling would delete every resource of these kinds, and their data. Leave the value out; after `helm uninstall`, `kubectl delete crd` deletes what you name to it." -}}
{{- end -}}
{{- end -}}
