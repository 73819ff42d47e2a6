package podapi

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
			class: errSyntax},
		{name: "unknown in the template", text: strings.Replace(workloadOf("apps/v1", "Deployment", "replicas: 3"), "image:", "imag:", 1),
			want: "spec.template.spec.containers[0].imag: unknown field", class: errSyntax},
		{name: "many", text: workloadOf("apps/v1", "Deployment", "replicas: 1000000000"),
			want: "f.yaml:5: spec.replicas: 1000000000 is not between 0 and 100", class: errInvalid},
		{name: "negative", text: workloadOf("apps/v1", "Deployment", "replicas: -1"), want: "spec.replicas", class: errInvalid},
		{name: "policy", text: strings.Replace(workloadOf("apps/v1", "Deployment", "replicas: 1"), "spec:\n      ",
			"spec:\n      restartPolicy: Never\n      ", 1),
			want: `f.yaml:10: spec.template.spec.restartPolicy: "Never" is not one of [Always]`, class: errInvalid},
		{name: "job's policy", text: workloadOf("batch/v1", "Job", "backoffLimit: 2"),
			want: `spec.template.spec.restartPolicy: "Always" is not one of [OnFailure Never]`, class: errInvalid},
		{name: "no parallelism", text: workloadOf("batch/v1", "Job", "parallelism: 0"),
			want: "f.yaml:5: spec.parallelism: 0 is not honoured: a job starts immediately", class: errNotHonoured},
		{name: "suspended", text: workloadOf("batch/v1", "Job", "suspend: true"), want: "spec.suspend: true is not honoured",
			class: errNotHonoured},
		{name: "claims", text: workloadOf("apps/v1", "StatefulSet", "volumeClaimTemplates: [{metadata: {name: x}}]"),
			want: "f.yaml:5: spec.volumeClaimTemplates[0].spec.accessModes: is required", class: errInvalid},
		{name: "deletion of claims", text: workloadOf("apps/v1", "StatefulSet", "persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}"),
			want: "spec.persistentVolumeClaimRetentionPolicy.whenDeleted: Delete is not honoured, only Retain: only", class: errNotHonoured},
		{name: "of the pod", text: strings.Replace(workloadOf("apps/v1", "Deployment", "replicas: 1"), "spec:\n      ",
			"spec:\n      hostPID: true\n      ", 1), want: "f.yaml:10: spec.template.spec.hostPID: is not honoured", class: errNotHonoured},
		{name: "invalid pod", text: strings.Replace(workloadOf("apps/v1", "Deployment", "replicas: 2"), "name: c", "name: C", 1),
			want: `f.yaml:10: spec.template.spec.containers[0].name: "C"`, class: errInvalid},
		{name: "name", text: strings.Replace(workloadOf("apps/v1", "Deployment", "replicas: 2"), "name: web,", "name: Web,", 1),
			want: `f.yaml:3: metadata.name: "Web"`, class: errInvalid},
		{name: "in a list", text: "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: apps/v1, kind: Deployment, metadata: {name: a}, spec: " +
			"{template: {spec: {hostPID: true}}}}\n", want: "items[0].spec.template.spec.hostPID", class: errNotHonoured},
		{name: "list in a list", text: "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: List, items: []}\n",
			want: "items[0].kind: List", class: errNotHonoured},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Read("f.yaml", []byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) || !errors.Is(err, tc.class) {
				t.Errorf("error %v, want %q of %v", err, tc.want, tc.class)
			}
		})
	}
}

// TestControllersFields: pods have the fields that their workload's controller sets.
func TestControllersFields(t *testing.T) {
	t.Parallel()
	hostnames := func(text string) string {
		return strings.Replace(text, "spec:\n      ", "spec:\n      hostname: other\n      ", 1)
	}
	never := func(text string) string {
		return strings.Replace(text, "spec:\n      ", "spec:\n      restartPolicy: Never\n      ", 1)
	}
	for _, tc := range []struct {
		name, text, hostname, subdomain string
		labels                          []string // beside the template's
	}{
		{name: "stateful set", text: workloadOf("apps/v1", "StatefulSet", "serviceName: zk-hs"), hostname: "web-0", subdomain: "zk-hs",
			labels: []string{"apps.kubernetes.io/pod-index", "controller-revision-hash", "statefulset.kubernetes.io/pod-name"}},
		{name: "the template's hostname", text: hostnames(workloadOf("apps/v1", "StatefulSet", "replicas: 2")), hostname: "web-1",
			labels: []string{"apps.kubernetes.io/pod-index", "controller-revision-hash", "statefulset.kubernetes.io/pod-name"}},
		{name: "deployment", text: workloadOf("apps/v1", "Deployment", "replicas: 2"), labels: []string{"pod-template-hash"}},
		{name: "replica set", text: hostnames(workloadOf("apps/v1", "ReplicaSet", "replicas: 2")), hostname: "other"},
		{name: "daemon set", text: workloadOf("apps/v1", "DaemonSet", "minReadySeconds: 3"),
			labels: []string{"controller-revision-hash", "pod-template-generation"}},
		{name: "job", text: never(workloadOf("batch/v1", "Job", "completions: 2")),
			labels: []string{"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"}},
		{name: "indexed job", text: hostnames(never(workloadOf("batch/v1", "Job", "completions: 2\n  completionMode: Indexed"))),
			hostname: "web-1",
			labels: []string{"batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-completion-index",
				"batch.kubernetes.io/job-name", "controller-uid", "job-name"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			found, err := Read("f.yaml", []byte(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			pod := found.Pods[len(found.Pods)-1]
			if pod.Spec.Hostname != tc.hostname || pod.Spec.Subdomain != tc.subdomain {
				t.Errorf("hostname %q, subdomain %q", pod.Spec.Hostname, pod.Spec.Subdomain)
			}
			owner := metav1.GetControllerOf(pod)
			if owner == nil || owner.Name != "web" || tc.name == "job" && pod.Labels["controller-uid"] != string(owner.UID) {
				t.Errorf("the controller is %v, labels %v", owner, pod.Labels)
			}
			var labels []string
			for key, value := range pod.Labels {
				if key != "app" && value != "" {
					labels = append(labels, key)
				}
			}
			slices.Sort(labels)
			if diff := cmp.Diff(tc.labels, labels); diff != "" {
				t.Error(diff)
			}
			again, err := Read("f.yaml", []byte(tc.text))
			const hash = "pod-template-hash"
			if err != nil || again.Pods[0].Labels[hash] != found.Pods[len(found.Pods)-1].Labels[hash] {
				t.Errorf("%v, or another hash of one template", err)
			}
		})
	}
}
