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
		{name: "deployment", text: workloadOf("apps/v1", "Deployment", "strategy: {type: Recreate}"), pods: []string{"web"}, policy: "Always"},
		{name: "replicas", text: workloadOf("apps/v1", "Deployment", "replicas: 3"), pods: []string{"web-0", "web-1", "web-2"}, policy: "Always"},
		{name: "no replicas", text: workloadOf("apps/v1", "ReplicaSet", "replicas: 0") + "---\n" + head, pods: []string{"web"},
			policy: "Always", labels: map[string]string{"app": ""}},
		{name: "replica set", text: workloadOf("apps/v1", "ReplicaSet", "replicas: 1"), pods: []string{"web"}, policy: "Always"},
		{name: "daemon set", text: workloadOf("apps/v1", "DaemonSet", "minReadySeconds: 3"), pods: []string{"web"}, policy: "Always"},
		{name: "stateful set", text: workloadOf("apps/v1", "StatefulSet", "serviceName: web"), pods: []string{"web-0"}, policy: "Always",
			labels: map[string]string{"statefulset.kubernetes.io/pod-name": "web-0", "apps.kubernetes.io/pod-index": "0"}},
		{name: "ordinals", text: workloadOf("apps/v1", "StatefulSet", "replicas: 2\n  ordinals: {start: 5}"),
			pods: []string{"web-5", "web-6"}, policy: "Always",
			labels: map[string]string{"apps.kubernetes.io/pod-index": "6"}},
		{name: "job", text: strings.Replace(workloadOf("batch/v1", "Job", "backoffLimit: 2\n  activeDeadlineSeconds: 60"), "spec:\n      ",
			"spec:\n      restartPolicy: Never\n      ", 1),
			pods: []string{"web"}, policy: "Never", labels: map[string]string{"batch.kubernetes.io/job-name": "web", "job-name": "web"}},
		{name: "list", text: "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: " +
			"{template: {spec: {containers: [{name: c, image: i}]}}}}\n" +
			"- {apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {containers: [{name: c, image: i}]}}\n", pods: []string{"a", "b"},
			policy: "Always", labels: map[string]string{"app": ""}},
		{name: "typed list", text: "apiVersion: apps/v1\nkind: DeploymentList\nitems:\n- {metadata: {name: a}, spec: {template: {spec: " +
			"{containers: [{name: c, image: i}]}}}}\n",
			pods: []string{"a"}, policy: "Always", labels: map[string]string{"app": ""}},
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
		{name: "unknown field", text: workloadOf("apps/v1", "Deployment", "replicass: 3"), want: "f.yaml:5: spec.replicass: unknown field",
			class: ErrSyntax},
		{name: "unknown in the template", text: strings.Replace(workloadOf("apps/v1", "Deployment", "replicas: 3"), "image:", "imag:", 1),
			want: "spec.template.spec.containers[0].imag: unknown field", class: ErrSyntax},
		{name: "many", text: workloadOf("apps/v1", "Deployment", "replicas: 1000000000"),
			want: "f.yaml:5: spec.replicas: 1000000000 is not between 0 and 100", class: ErrInvalid},
		{name: "negative", text: workloadOf("apps/v1", "Deployment", "replicas: -1"), want: "spec.replicas", class: ErrInvalid},
		{name: "policy", text: strings.Replace(workloadOf("apps/v1", "Deployment", "replicas: 1"), "spec:\n      ",
			"spec:\n      restartPolicy: Never\n      ", 1),
			want: `f.yaml:10: spec.template.spec.restartPolicy: "Never" is not one of [Always]`, class: ErrInvalid},
		{name: "job's policy", text: workloadOf("batch/v1", "Job", "backoffLimit: 2"),
			want: `spec.template.spec.restartPolicy: "Always" is not one of [OnFailure Never]`, class: ErrInvalid},
		{name: "no parallelism", text: workloadOf("batch/v1", "Job", "parallelism: 0"),
			want: "f.yaml:5: spec.parallelism: 0 is not honoured: a job is run at once", class: ErrNotHonoured},
		{name: "suspended", text: workloadOf("batch/v1", "Job", "suspend: true"), want: "spec.suspend: true is not honoured",
			class: ErrNotHonoured},
		{name: "claims", text: workloadOf("apps/v1", "StatefulSet", "volumeClaimTemplates: [{metadata: {name: x}}]"),
			want: "f.yaml:5: spec.volumeClaimTemplates[0].spec.accessModes: is required", class: ErrInvalid},
		{name: "deletion of claims", text: workloadOf("apps/v1", "StatefulSet", "persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}"),
			want: "spec.persistentVolumeClaimRetentionPolicy.whenDeleted: Delete is not honoured, only Retain: nothing but", class: ErrNotHonoured},
		{name: "of the pod", text: strings.Replace(workloadOf("apps/v1", "Deployment", "replicas: 1"), "spec:\n      ",
			"spec:\n      hostPID: true\n      ", 1), want: "f.yaml:10: spec.template.spec.hostPID: is not honoured", class: ErrNotHonoured},
		{name: "invalid pod", text: strings.Replace(workloadOf("apps/v1", "Deployment", "replicas: 2"), "name: c", "name: C", 1),
			want: `f.yaml:10: spec.template.spec.containers[0].name: "C"`, class: ErrInvalid},
		{name: "name", text: strings.Replace(workloadOf("apps/v1", "Deployment", "replicas: 2"), "name: web,", "name: Web,", 1),
			want: `f.yaml:3: metadata.name: "Web"`, class: ErrInvalid},
		{name: "in a list", text: "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: " +
			"{template: {spec: {hostPID: true}}}}\n", want: "items[0].spec.template.spec.hostPID", class: ErrNotHonoured},
		{name: "list in a list", text: "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: List, items: []}\n",
			want: "items[0].kind: List", class: ErrNotHonoured},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Read("f.yaml", []byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) || !errors.Is(err, tc.class) {
				t.Errorf("error %v, want %q of %v", err, tc.want, tc.class)
			}
		})
	}
}
