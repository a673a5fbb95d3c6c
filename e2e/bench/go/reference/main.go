// Reference for `python -m e2e.bench`: the operator for Memcached that one would write on controller-runtime. It keeps
// the same Service and Deployment as the operator here, writes the same status and records the same event, for a spec of defaults
// with workload Deployment.
package main

import (
	"context"
	"flag"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

type Spec struct {
	Size           int32  `json:"size"`
	Version        string `json:"version,omitempty"`
	MemoryMB       int32  `json:"memoryMB,omitempty"`
	MaxConnections int32  `json:"maxConnections,omitempty"`
	Threads        int32  `json:"threads,omitempty"`
	MaxItemSizeMB  int32  `json:"maxItemSizeMB,omitempty"`
	ContainerPort  int32  `json:"containerPort,omitempty"`
}

type Status struct {
	Phase              string             `json:"phase"`
	Replicas           int32              `json:"replicas"`
	ReadyReplicas      int32              `json:"readyReplicas"`
	Selector           string             `json:"selector"`
	Image              string             `json:"image"`
	Version            string             `json:"version"`
	ObservedGeneration int64              `json:"observedGeneration"`
	Conditions         []metav1.Condition `json:"conditions"`
}

type Memcached struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec   `json:"spec"`
	Status            Status `json:"status,omitempty"`
}

type MemcachedList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Memcached `json:"items"`
}

func (m *Memcached) DeepCopyObject() runtime.Object {
	made := *m
	made.ObjectMeta = *m.ObjectMeta.DeepCopy()
	made.Status.Conditions = append([]metav1.Condition(nil), m.Status.Conditions...)
	return &made
}

func (l *MemcachedList) DeepCopyObject() runtime.Object {
	made := *l
	made.Items = make([]Memcached, len(l.Items))
	for i := range l.Items {
		made.Items[i] = *l.Items[i].DeepCopyObject().(*Memcached)
	}
	return &made
}

type reconciler struct {
	client.Client
	events record.EventRecorder
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var m Memcached
	if err := r.Get(ctx, request.NamespacedName, &m); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	own := map[string]string{"app.kubernetes.io/name": "memcached", "app.kubernetes.io/instance": m.Name, "app.kubernetes.io/component": "server"}
	all := labels.Merge(own, labels.Set{"app.kubernetes.io/managed-by": "memcached-operator",
		"app.kubernetes.io/part-of": "platform"})
	named := metav1.ObjectMeta{Name: m.Name, Namespace: m.Namespace}
	service, deployment := &corev1.Service{ObjectMeta: named}, &appsv1.Deployment{ObjectMeta: named}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, service, func() error {
		service.Labels = all
		service.Spec.ClusterIP, service.Spec.Selector = "None", own
		service.Spec.Ports = []corev1.ServicePort{{Name: "memcached", Port: m.Spec.ContainerPort,
			TargetPort: intstr.FromString("memcached"), Protocol: corev1.ProtocolTCP}}
		return controllerutil.SetControllerReference(&m, service, r.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}
	image := "memcached:" + m.Spec.Version
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		deployment.Labels, deployment.Spec.Replicas = all, &m.Spec.Size
		if deployment.ResourceVersion != "" { // to set all of it again would replace the defaults, at each reconcile
			deployment.Spec.Template.Spec.Containers[0].Image = image
			return controllerutil.SetControllerReference(&m, deployment, r.Scheme())
		}
		deployment.Spec.Selector, deployment.Spec.RevisionHistoryLimit = &metav1.LabelSelector{MatchLabels: own}, ptr.To[int32](2)
		deployment.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0))}}
		deployment.Spec.Template.Labels, deployment.Spec.Template.Spec = all, pod(&m, image, own)
		return controllerutil.SetControllerReference(&m, deployment, r.Scheme())
	}); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.report(ctx, &m, deployment, own, image)
}

func (r *reconciler) report(ctx context.Context, m *Memcached, d *appsv1.Deployment, own labels.Set, image string) error {
	before := m.DeepCopyObject().(*Memcached)
	ready, reason, state := d.Status.ReadyReplicas, "Creating", metav1.ConditionUnknown
	message := fmt.Sprintf("Creating the servers: %d of %d servers are ready.", ready, m.Spec.Size)
	if ready == m.Spec.Size {
		reason, state, message = "Running", metav1.ConditionTrue, fmt.Sprintf("%d of %d servers are ready.", ready, m.Spec.Size)
	}
	m.Status.Phase, m.Status.Replicas, m.Status.ReadyReplicas = reason, d.Status.Replicas, ready
	m.Status.Selector, m.Status.Image, m.Status.Version = own.String(), image, m.Spec.Version
	m.Status.ObservedGeneration = m.Generation
	moving := map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse}[state == metav1.ConditionUnknown]
	for kind, value := range map[string]metav1.ConditionStatus{"Ready": state, "Reconciling": moving, "Stalled": metav1.ConditionFalse} {
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: kind, Status: value, Reason: reason,
			Message: message, ObservedGeneration: m.Generation})
	}
	if equality.Semantic.DeepEqual(before.Status, m.Status) {
		return nil
	}
	if err := r.Status().Update(ctx, m); err != nil || before.Status.Phase == reason {
		return err
	}
	r.events.Event(m, corev1.EventTypeNormal, reason, message)
	return nil
}

func pod(m *Memcached, image string, own map[string]string) corev1.PodSpec {
	probe := corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("memcached")}}
	memory := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("147Mi")} // default of this project
	return corev1.PodSpec{
		AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false), TerminationGracePeriodSeconds: ptr.To[int64](30),
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](11211),
			RunAsGroup: ptr.To[int64](11211), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{
			Name: "memcached", Image: image, Command: []string{"memcached"},
			Args: []string{fmt.Sprintf("--port=%d", m.Spec.ContainerPort), fmt.Sprintf("--memory-limit=%d", m.Spec.MemoryMB),
				fmt.Sprintf("--conn-limit=%d", m.Spec.MaxConnections), fmt.Sprintf("--threads=%d", m.Spec.Threads),
				fmt.Sprintf("--max-item-size=%dm", m.Spec.MaxItemSizeMB)},
			Ports: []corev1.ContainerPort{{Name: "memcached", ContainerPort: m.Spec.ContainerPort, Protocol: corev1.ProtocolTCP}},
			Resources: corev1.ResourceRequirements{Limits: memory, Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: memory[corev1.ResourceMemory]}},
			StartupProbe:   &corev1.Probe{ProbeHandler: probe, PeriodSeconds: 1, FailureThreshold: 60},
			ReadinessProbe: &corev1.Probe{ProbeHandler: probe, PeriodSeconds: 5, TimeoutSeconds: 3, FailureThreshold: 3},
			LivenessProbe:  &corev1.Probe{ProbeHandler: probe, PeriodSeconds: 20, TimeoutSeconds: 5, FailureThreshold: 6},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		}},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{TopologyKey: "kubernetes.io/hostname", MaxSkew: 1,
			WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: own}}},
	}
}

func main() {
	workers := flag.Int("workers", 0, "concurrent reconciles; 0 for the default of controller-runtime, which is 1")
	probes := flag.String("health-probe-bind-address", "0", "address of /readyz")
	flag.Parse() // --kubeconfig is a flag of controller-runtime
	ctrl.SetLogger(zap.New())
	scheme, group := runtime.NewScheme(), schema.GroupVersion{Group: "cache.example.com", Version: "v1alpha1"}
	must(clientgoscheme.AddToScheme(scheme))
	scheme.AddKnownTypes(group, &Memcached{}, &MemcachedList{})
	metav1.AddToGroupVersion(scheme, group)
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{Scheme: scheme, HealthProbeBindAddress: *probes,
		Metrics: metrics.Options{BindAddress: "0"}})
	must(err)
	must(manager.AddReadyzCheck("running", healthz.Ping))
	must(ctrl.NewControllerManagedBy(manager).For(&Memcached{}).Owns(&corev1.Service{}).Owns(&appsv1.Deployment{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: *workers}).
		Complete(&reconciler{manager.GetClient(), manager.GetEventRecorderFor("memcached-operator")}))
	must(manager.Start(ctrl.SetupSignalHandler()))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
