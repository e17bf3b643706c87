package charts_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An uninstall clears the statuses of Services first, by a Job with the rights of the controller, while there are any. One
// that fails leaves the release, which goes without hooks. Who only renders the chart does not get the Job, which would
// take all addresses where it is applied. A second install names the first, and leaves nothing.
func testUninstallHook(t *testing.T, config *rest.Config) {
	programs, a := helms(t), asAdmin(t, config)
	run := func(helm program, args ...string) error {
		out, err := helm(append(args, "--namespace", namespace)...)
		t.Logf("%v: %s (%v)", args, out[max(0, len(out)-300):], err)
		return err
	}
	twice := func(helm program, release, in string) {
		out, err := helm("install", release, chart, "--set", "crds.install=false", "--namespace", in, "--create-namespace")
		want := "is installed already, as release fairlead in namespace " + namespace + ", and a cluster has it once: change that one by helm upgrade fairlead --namespace " + namespace
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("a second install, as %s in %s: %v: %s", release, in, err, out)
		}
	}
	for version, path := range programs {
		helm := a.admin(path)
		for _, object := range decode(t, render(t, path, nil)) {
			if _, is := object.(*batchv1.Job); is {
				t.Errorf("%s template renders the Job", version)
			}
		}
		if err := run(helm, "install", "fairlead", chart, "--set", "crds.install=false"); err != nil {
			t.Fatal(err)
		}
		twice(helm, "second", namespace)
		twice(helm, "fairlead", "elsewhere")
		if err := a.Get(t.Context(), client.ObjectKey{Namespace: "elsewhere", Name: "fairlead-controller"}, &appsv1.Deployment{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: a second install has left something (%v)", version, err)
		}
		for _, ends := range []struct{ criterion, condition batchv1.JobConditionType }{
			{batchv1.JobFailureTarget, batchv1.JobFailed}, {batchv1.JobSuccessCriteriaMet, batchv1.JobComplete},
		} {
			done := make(chan error, 1)
			go func() { done <- run(helm, "uninstall", "fairlead") }()
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}
			until(a, "of the hook", "fairlead-uninstall", job, func() bool { return len(job.Status.Conditions) == 0 && job.UID != "" })
			a.checkUninstall(job)
			now := metav1.Now()
			job.Status.StartTime = &now
			for _, c := range []batchv1.JobConditionType{ends.criterion, ends.condition} {
				job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue, LastTransitionTime: now})
			}
			if ends.condition == batchv1.JobComplete {
				job.Status.CompletionTime = &now
			}
			if err := a.Status().Update(t.Context(), job); err != nil {
				t.Fatal(err)
			}
			if err := <-done; (err == nil) != (ends.condition == batchv1.JobComplete) {
				t.Errorf("%s: the hook is %s, and the uninstall ends with %v", version, ends.condition, err)
			}
		}
		for name, gone := range map[string]client.Object{"fairlead-uninstall": &batchv1.Job{}, "fairlead-controller": &appsv1.Deployment{}} {
			if err := a.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, gone); !apierrors.IsNotFound(err) {
				t.Errorf("%s: %s is there after the uninstall (%v)", version, name, err)
			}
		}
	}
}

// checkUninstall checks that the hook's pod is one of the controller but for its command, that the Deployment does not take
// it for its own, and that its rights are there.
func (a *authority) checkUninstall(job *batchv1.Job) {
	a.t.Helper()
	deployment, binding := &appsv1.Deployment{}, &rbacv1.ClusterRoleBinding{}
	if err := a.Get(a.t.Context(), client.ObjectKey{Namespace: namespace, Name: "fairlead-controller"}, deployment); err != nil {
		a.t.Error(err)
	}
	if err := a.Get(a.t.Context(), client.ObjectKey{Name: "fairlead-controller"}, binding); err != nil {
		a.t.Error(err)
	}
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		a.t.Error(err)
	}
	if pod := job.Spec.Template; selector.Matches(labels.Set(pod.Labels)) {
		a.t.Errorf("the Deployment selects the hook's pod: %v", pod.Labels)
	}
	want, got := deployment.Spec.Template.Spec.DeepCopy(), job.Spec.Template.Spec.DeepCopy()
	want.Affinity.PodAntiAffinity, want.RestartPolicy = nil, corev1.RestartPolicyNever
	c := &want.Containers[0]
	c.Name, c.Args, c.Ports, c.LivenessProbe, c.ReadinessProbe = "uninstall", nil, nil, nil, nil
	c.Command = []string{"/usr/local/bin/controller", "uninstall"}
	if diff := cmp.Diff(want, got); diff != "" {
		a.t.Errorf("the hook's pod (-want +got):\n%s", diff)
	}
}
