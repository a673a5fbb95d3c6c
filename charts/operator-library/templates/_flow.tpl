{{/*
Priority of the operator's Leases in the API server: requests about them do not wait behind those of other service accounts, so
that an API server under load costs no leader. A FlowSchema is cluster-scoped; an operator of watchNamespaces gets none.
*/}}
{{- define "operator.flowSchema" -}}
{{- if and .Values.leaderElection.flowSchema (not .Values.watchNamespaces) -}}
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata:
  name: {{ printf "%s-leases" (include "operator.fullname" .) | quote }}
  labels: {{- include "operator.labels" . | nindent 4 }}
spec:
  priorityLevelConfiguration:
    name: leader-election # of Kubernetes
  matchingPrecedence: 250 # before that of all service accounts, 9000
  distinguisherMethod:
    type: ByUser
  rules:
    - subjects:
        - kind: ServiceAccount
          serviceAccount:
            name: {{ include "operator.serviceAccountName" . | quote }}
            namespace: {{ include "operator.namespace" . | quote }}
      resourceRules:
        - verbs: [get, create, patch]
          apiGroups: [coordination.k8s.io]
          resources: [leases]
          namespaces: [{{ include "operator.namespace" . | quote }}]
{{- end -}}
{{- end -}}
