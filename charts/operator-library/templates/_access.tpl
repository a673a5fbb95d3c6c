{{/* The operator's account. Only its pod mounts the token (see the Deployment), nothing else that runs as it. */}}
{{- define "operator.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "operator.serviceAccountName" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
  labels: {{- include "operator.labels" . | nindent 4 }}
  {{- with .Values.serviceAccount.annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end -}}
{{- end -}}

{{/*
What the operator may do: the rules in files/rules.yaml, in every namespace or, where watchNamespaces lists some, in
those alone.
*/}}
{{- define "operator.access" -}}
{{- if .Values.rbac.create -}}
{{- $scopes := .Values.watchNamespaces | default (list "") -}}
{{- range $namespace := $scopes }}
{{- $role := ternary "Role" "ClusterRole" (ne $namespace "") }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $role }}
metadata: {{- include "operator.accessMetadata" (list $ $namespace) | nindent 2 }}
rules: {{- $.Files.Get "files/rules.yaml" | fromYamlArray | toYaml | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $role }}Binding
metadata: {{- include "operator.accessMetadata" (list $ $namespace) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $role }}
  name: {{ include "operator.fullname" $ | quote }}
subjects:
  - kind: ServiceAccount
    name: {{ include "operator.serviceAccountName" $ | quote }}
    namespace: {{ $.Release.Namespace | quote }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "operator.accessMetadata" -}}
{{- $root := index . 0 -}}
name: {{ include "operator.fullname" $root | quote }}
{{- with index . 1 }}
namespace: {{ . | quote }}
{{- end }}
labels: {{- include "operator.labels" $root | nindent 2 }}
{{- end -}}

{{/*
What people may do: Kubernetes' own roles view, edit and admin learn of the operator's resources by aggregation, so
whoever may edit Deployments in a namespace may edit these there too.
*/}}
{{- define "operator.userRoles" -}}
{{- if and .Values.rbac.create .Values.rbac.aggregate -}}
{{- $view := list -}}
{{- $edit := list -}}
{{- range $_, $content := .Files.Glob "files/crds/*.yaml" }}
{{- $spec := ($content | toString | fromYaml).spec }}
{{- $group := list $spec.group }}
{{- $plural := $spec.names.plural }}
{{- $all := list $plural (printf "%s/status" $plural) (printf "%s/scale" $plural) }}
{{- $view = append $view (dict "apiGroups" $group "resources" $all "verbs" (list "get" "list" "watch")) }}
{{- $change := list "create" "delete" "deletecollection" "patch" "update" }}
{{- $edit = append $edit (dict "apiGroups" $group "resources" (list $plural) "verbs" $change) }}
{{- $scale := list (printf "%s/scale" $plural) }}
{{- $edit = append $edit (dict "apiGroups" $group "resources" $scale "verbs" (list "patch" "update")) }}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ include "operator.fullname" . }}-view
  labels:
    {{- include "operator.labels" . | nindent 4 }}
    rbac.authorization.k8s.io/aggregate-to-view: "true"
    rbac.authorization.k8s.io/aggregate-to-edit: "true"
    rbac.authorization.k8s.io/aggregate-to-admin: "true"
rules: {{- toYaml $view | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ include "operator.fullname" . }}-edit
  labels:
    {{- include "operator.labels" . | nindent 4 }}
    rbac.authorization.k8s.io/aggregate-to-edit: "true"
    rbac.authorization.k8s.io/aggregate-to-admin: "true"
rules: {{- toYaml $edit | nindent 2 }}
{{- end -}}
{{- end -}}
