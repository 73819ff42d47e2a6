package podapi

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

const template = `
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {note: x}}
    spec:
      containers: [{name: c, image: "i:1"}]
`

func workloadOf(version, kind, rest string) string {
	return "apiVersion: " + version + "\nkind: " + kind + "\nmetadata: {name: web, namespace: prod}\nspec:\n  " + rest + template
}

func TestReadMakesThePodsOfWorkloads(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		pods       []string
		policy     corev1.RestartPolicy
		labels     map[string]string // of the last pod
	}{
		{"deployment", workloadOf("apps/v1", "Deployment", "strategy: {type: Recreate}"), []string{"web"}, "Always", nil},
		{"replicas", workloadOf("apps/v1", "Deployment", "replicas: 3"), []string{"web-0", "web-1", "web-2"}, "Always", nil},
		{"no replicas", workloadOf("apps/v1", "ReplicaSet", "replicas: 0") + "---\n" + head, []string{"web"}, "Always", map[string]string{"app": ""}},
		{"replica set", workloadOf("apps/v1", "ReplicaSet", "replicas: 1"), []string{"web"}, "Always", nil},
		{"daemon set", workloadOf("apps/v1", "DaemonSet", "minReadySeconds: 3"), []string{"web"}, "Always", nil},
		{"stateful set", workloadOf("apps/v1", "StatefulSet", "serviceName: web"), []string{"web-0"}, "Always",
			map[string]string{"statefulset.kubernetes.io/pod-name": "web-0", "apps.kubernetes.io/pod-index": "0"}},
		{"ordinals", workloadOf("apps/v1", "StatefulSet", "replicas: 2\n  ordinals: {start: 5}"), []string{"web-5", "web-6"}, "Always",
			map[string]string{"apps.kubernetes.io/pod-index": "6"}},
		{"job", strings.Replace(workloadOf("batch/v1", "Job", "backoffLimit: 2\n  activeDeadlineSeconds: 60"), "spec:\n      ", "spec:\n      restartPolicy: Never\n      ", 1),
			[]string{"web"}, "Never", map[string]string{"batch.kubernetes.io/job-name": "web", "job-name": "web"}},
		{"list", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {spec: {containers: [{name: c, image: i}]}}}}\n" +
			"- {apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {containers: [{name: c, image: i}]}}\n", []string{"a", "b"}, "Always", map[string]string{"app": ""}},
		{"typed list", "apiVersion: apps/v1\nkind: DeploymentList\nitems:\n- {metadata: {name: a}, spec: {template: {spec: {containers: [{name: c, image: i}]}}}}\n",
			[]string{"a"}, "Always", map[string]string{"app": ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			found, err := Read("f.yaml", []byte(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			uids := map[string]bool{}
			for _, pod := range found.Pods {
				names = append(names, pod.Name)
				uids[string(pod.UID)] = true
				if pod.Spec.RestartPolicy != tc.policy || *pod.Spec.TerminationGracePeriodSeconds != 30 {
					t.Errorf("%s: policy %q", pod.Name, pod.Spec.RestartPolicy)
				}
			}
			if diff := cmp.Diff(tc.pods, names); diff != "" {
				t.Error(diff)
			}
			last := found.Pods[len(found.Pods)-1]
			if len(uids) != len(names) {
				t.Error("pods of one uid")
			}
			want := map[string]string{"app": "web"}
			for key, value := range tc.labels {
				want[key] = value
			}
			for key, value := range want {
				if last.Labels[key] != value {
					t.Errorf("label %s=%q, want %q", key, last.Labels[key], value)
				}
			}
			if want["app"] == "web" && (last.Namespace != "prod" || last.Annotations["note"] != "x") {
				t.Errorf("namespace %q, annotations %v", last.Namespace, last.Annotations)
			}
			if limit := last.Spec.ActiveDeadlineSeconds; tc.name == "job" && (limit == nil || *limit != 60) {
				t.Errorf("deadline %v", limit)
			}
		})
	}
}

func TestReadRefusesOfWorkloads(t *testing.T) {
	for _, tc := range []struct {
		name, text, want string
		class            error
	}{
		{"unknown field", workloadOf("apps/v1", "Deployment", "replicass: 3"), "f.yaml:5: spec.replicass: unknown field", ErrSyntax},
		{"unknown in the template", strings.Replace(workloadOf("apps/v1", "Deployment", "replicas: 3"), "image:", "imag:", 1), "spec.template.spec.containers[0].imag: unknown field", ErrSyntax},
		{"many", workloadOf("apps/v1", "Deployment", "replicas: 1000000000"), "f.yaml:5: spec.replicas: 1000000000 is not between 0 and 100", ErrInvalid},
		{"negative", workloadOf("apps/v1", "Deployment", "replicas: -1"), "spec.replicas", ErrInvalid},
		{"policy", strings.Replace(workloadOf("apps/v1", "Deployment", "replicas: 1"), "spec:\n      ", "spec:\n      restartPolicy: Never\n      ", 1),
			`f.yaml:10: spec.template.spec.restartPolicy: "Never" is not one of [Always]`, ErrInvalid},
		{"job's policy", workloadOf("batch/v1", "Job", "backoffLimit: 2"), `spec.template.spec.restartPolicy: "Always" is not one of [OnFailure Never]`, ErrInvalid},
		{"completions", workloadOf("batch/v1", "Job", "completions: 3"), "f.yaml:5: spec.completions: is not honoured: all of a job's pods are run at once; set parallelism to 3", ErrNotHonoured},
		{"suspended", workloadOf("batch/v1", "Job", "suspend: true"), "spec.suspend: true is not honoured", ErrNotHonoured},
		{"claims", workloadOf("apps/v1", "StatefulSet", "volumeClaimTemplates: [{metadata: {name: x}}]"), "f.yaml:5: spec.volumeClaimTemplates: is not honoured: there are no persistent volumes", ErrNotHonoured},
		{"of the pod", strings.Replace(workloadOf("apps/v1", "Deployment", "replicas: 1"), "spec:\n      ", "spec:\n      hostPID: true\n      ", 1), "f.yaml:10: spec.template.spec.hostPID: is not honoured", ErrNotHonoured},
		{"invalid pod", strings.Replace(workloadOf("apps/v1", "Deployment", "replicas: 2"), "name: c", "name: C", 1), `f.yaml:10: spec.template.spec.containers[0].name: "C"`, ErrInvalid},
		{"name", strings.Replace(workloadOf("apps/v1", "Deployment", "replicas: 2"), "name: web,", "name: Web,", 1), `f.yaml:3: metadata.name: "Web"`, ErrInvalid},
		{"in a list", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: {template: {spec: {hostPID: true}}}}\n", "items[0].spec.template.spec.hostPID", ErrNotHonoured},
		{"list in a list", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: List, items: []}\n", "items[0].kind: List", ErrNotHonoured},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Read("f.yaml", []byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) || !errors.Is(err, tc.class) {
				t.Errorf("error %v, want %q of %v", err, tc.want, tc.class)
			}
		})
	}
}
