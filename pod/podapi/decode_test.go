package podapi

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

const head = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: web\nspec:\n  containers:\n  - name: main\n    image: nginx:1\n"

func TestDecodeSetsTheDefaultsOfTheAPI(t *testing.T) {
	pods, err := Decode("pod.yaml", []byte(head+`
    ports:
    - containerPort: 80
    resources:
      limits: {cpu: 500m}
  - {name: second, image: localhost/busybox}
  - {name: third, image: busybox}
  - {name: fourth, image: "busybox@sha256:0123"}
  - {name: fifth, image: "registry:5000/busybox"}
`))
	if err != nil {
		t.Fatal(err)
	}
	pod := pods[0]
	if pod.Namespace != "default" || pod.Spec.RestartPolicy != corev1.RestartPolicyAlways || *pod.Spec.TerminationGracePeriodSeconds != 30 {
		t.Errorf("namespace %q, policy %q, grace %d", pod.Namespace, pod.Spec.RestartPolicy, *pod.Spec.TerminationGracePeriodSeconds)
	}
	if len(pod.UID) != 36 {
		t.Errorf("uid %q", pod.UID)
	}
	main := pod.Spec.Containers[0]
	if main.Ports[0].Protocol != corev1.ProtocolTCP {
		t.Errorf("protocol %q", main.Ports[0].Protocol)
	}
	if request := main.Resources.Requests[corev1.ResourceCPU]; request.String() != "500m" {
		t.Errorf("the request is %s, not the limit", request.String())
	}
	var policies []corev1.PullPolicy
	for _, container := range pod.Spec.Containers {
		policies = append(policies, container.ImagePullPolicy)
	}
	want := []corev1.PullPolicy{"IfNotPresent", "IfNotPresent", "Always", "IfNotPresent", "Always"}
	if diff := cmp.Diff(want, policies); diff != "" {
		t.Errorf("pull policies: %s", diff)
	}
}

func TestDecodeReadsDocumentsAndLists(t *testing.T) {
	list := "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: in-list}, spec: {containers: [{name: c, " +
		"image: i}]}}\n"
	third := strings.Replace(head, "name: web", "name: third", 1)
	pods, err := Decode("-", []byte("# only a comment\n---\n"+head+"--- # the next\n"+list+"...\n"+third+"---\n"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	if diff := cmp.Diff([]string{"web", "in-list", "third"}, names); diff != "" {
		t.Error(diff)
	}
	if pods[0].UID == pods[1].UID {
		t.Error("two pods with one uid")
	}
}

func TestDecodeMakesUpANameFromGenerateName(t *testing.T) {
	pods, err := Decode("-", []byte(strings.Replace(head, "name: web", "generateName: web-", 1)))
	if err != nil {
		t.Fatal(err)
	}
	if name := pods[0].Name; len(name) != len("web-")+5 || !strings.HasPrefix(name, "web-") {
		t.Errorf("name %q", name)
	}
}

func TestDecodeNamesTheFault(t *testing.T) {
	tests := []struct {
		name, text, want string
		class            error
	}{
		{name: "unparsable", text: "apiVersion: v1\nkind: Pod\nmetadata: {name: web\nspec: 1\n",
			want: "f.yaml:3: not YAML: did not find expected ',' or '}'", class: errSyntax},
		{name: "tab", text: "apiVersion: v1\n\tkind: Pod\n", want: "f.yaml:2: not YAML: found a tab character", class: errSyntax},
		{name: "unparsable in the second document", text: head + "---\na: b\n c: d\n", want: "f.yaml:11: not YAML:", class: errSyntax},
		{name: "empty", text: "# nothing\n", want: "f.yaml: no pod in it", class: errSyntax},
		{name: "scalar", text: "hello\n", want: "f.yaml:1: not an object", class: errSyntax},
		{name: "no kind", text: "apiVersion: v1\n", want: "f.yaml:1: kind: is missing", class: errSyntax},
		{name: "cron job", text: "apiVersion: batch/v1\nkind: CronJob\n",
			want:  "f.yaml:2: kind: CronJob (batch/v1): there is no scheduling by time; make a Job of its spec.jobTemplate.spec",
			class: errNotHonoured},
		{name: "deployment of an old API", text: "apiVersion: extensions/v1beta1\nkind: Deployment\n",
			want: "f.yaml:2: kind: Deployment (extensions/v1beta1): apiVersion must be apps/v1", class: errNotHonoured},
		{name: "unknown field", text: head + "    imagePullPolice: Always\n",
			want: "f.yaml:9: spec.containers[0].imagePullPolice: unknown field", class: errSyntax},
		{name: "wrong case", text: head + "    Env: []\n", want: "f.yaml:9: spec.containers[0].Env: unknown field", class: errSyntax},
		{name: "duplicate", text: head + "    image: other\n", want: `f.yaml:9: key "image" is already set in this map`, class: errSyntax},
		{name: "type", text: head + "    tty: 7\n", want: "f.yaml:9: spec.containers[0].tty: is a number, and must be true or false",
			class: errSyntax},
		{name: "quantity", text: head + "    resources: {limits: {memory: lots}}\n", want: "quantities must match", class: errSyntax},
		{name: "refused volume", text: head + "  volumes:\n  - name: v\n    nfs: {server: s, path: /}\n",
			want: "f.yaml:11: spec.volumes[0].nfs: is not honoured", class: errNotHonoured},
		{name: "refused value", text: head + "  dnsPolicy: ClusterFirstWithHostNet\n",
			want:  "f.yaml:9: spec.dnsPolicy: ClusterFirstWithHostNet is not honoured, only ClusterFirst and Default and None",
			class: errNotHonoured},
		{name: "refused host network", text: head + "  hostNetwork: true\n",
			want: "f.yaml:9: spec.hostNetwork: is not honoured: the pod is a VM", class: errNotHonoured},
		{name: "refused resource", text: head + "    resources: {limits: {\"nvidia.com/gpu\": 1}}\n",
			want: "spec.containers[0].resources.limits.nvidia.com/gpu: is not honoured", class: errNotHonoured},
		{name: "no containers", text: "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {}\n",
			want: "f.yaml:4: spec.containers: is required", class: errInvalid},
		{name: "bad name", text: strings.Replace(head, "web", "Web_1", 1), want: `f.yaml:4: metadata.name: "Web_1"`, class: errInvalid},
		{name: "no image", text: strings.Replace(head, "image: nginx:1", "args: [a]", 1),
			want: "f.yaml:7: spec.containers[0].image: is required", class: errInvalid},
		{name: "twice", text: head + "  - {name: main, image: i}\n", want: `f.yaml:9: spec.containers[1].name: "main" appears twice`,
			class: errInvalid},
		{name: "port", text: head + "    ports: [{containerPort: 70000}]\n", want: "70000 is not between 1 and 65535", class: errInvalid},
		{name: "host ports", text: head + "    ports: [{containerPort: 1, hostPort: 8080}, {containerPort: 2, hostPort: 8080}]\n",
			want: "8080 appears twice", class: errInvalid},
		{name: "sctp", text: head + "    ports: [{containerPort: 1, hostPort: 53, protocol: SCTP}]\n", want: "only TCP and UDP",
			class: errInvalid},
		{name: "no path", text: head + "  volumes: [{name: v, hostPath: {}}]\n",
			want: "spec.volumes[0].hostPath.path: is required", class: errInvalid},
		{name: "a path upwards", text: head + "  volumes: [{name: v, hostPath: {path: /a/../b}}]\n",
			want: "must not contain '..'", class: errInvalid},
		{name: "a path's type", text: head + "  volumes: [{name: v, hostPath: {path: /a, type: Dir}}]\n",
			want: `"Dir" is not one of`, class: errInvalid},
		{name: "volume", text: head + "    volumeMounts: [{name: v, mountPath: /v}]\n", want: `there is no volume "v"`, class: errInvalid},
		{name: "request over limit", text: head + "    resources: {limits: {cpu: 1}, requests: {cpu: 2}}\n",
			want: "2 is more than the limit 1", class: errInvalid},
		{name: "capability", text: head + "    securityContext: {capabilities: {add: [CAP_NET_ADMIN, net_raw, ALL], drop: [FLY]}}\n",
			want: `f.yaml:9: spec.containers[0].securityContext.capabilities.drop[0]: "FLY" is not a capability`, class: errInvalid},
		{name: "policy", text: head + "  restartPolicy: Sometimes\n",
			want: `f.yaml:9: spec.restartPolicy: "Sometimes" is not one of [Always OnFailure Never]`, class: errInvalid},
		{name: "internal annotation", text: strings.Replace(head, "name: web",
			"name: web\n  annotations: {io.bulkhead.internal/network: none}", 1), want: "is reserved", class: errInvalid},
		{name: "field path", text: head + "    env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.oops}}}]\n",
			want: `"spec.oops" is not a field`, class: errInvalid},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pods, err := Decode("f.yaml", []byte(test.text))
			if err == nil {
				t.Fatalf("decoded to %d pods", len(pods))
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %q, want %q", err, test.want)
			}
			if !errors.Is(err, test.class) {
				t.Errorf("error %q is not of the class %q", err, test.class)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of several lines: %q", err)
			}
		})
	}
}

// TestWhatSaysNothing: a pod is not refused for an empty field, or for one that every node satisfies. An empty volume
// still has its kind.
func TestWhatSaysNothing(t *testing.T) {
	for text, refused := range map[string]string{
		"affinity: {}": "",
		"affinity: {nodeAffinity: {}, podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: []}}": "",
		"nodeSelector: {}": "",
		"nodeSelector: {kubernetes.io/os: linux, kubernetes.io/arch: amd64}": "",
		"nodeSelector: {kubernetes.io/os: windows}": "f.yaml:9: spec.nodeSelector.kubernetes.io/os: is not honoured, " +
			"only kubernetes.io/os=linux and",
		"nodeSelector: {disk: ssd}":                                 "spec.nodeSelector.disk: is not honoured",
		"securityContext: {seLinuxOptions: {}, windowsOptions: {}}": "",
		"securityContext: {seLinuxOptions: {level: s0}}":            "spec.securityContext.seLinuxOptions",
		"topologySpreadConstraints: []":                             "",
		"resourceClaims: []":                                        "",
		"hostNetwork: false":                                        "",
		"volumes: [{name: v, nfs: {}}]":                             "spec.volumes[0].nfs",
		"affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: x}}]}}": "",
		"affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: " +
			"x}]}}": "f.yaml:9: spec.affinity.podAntiAffinity.requiredDuring",
	} {
		_, err := Decode("f.yaml", []byte(head+"  "+text+"\n"))
		if (err == nil) != (refused == "") || err != nil && (!errors.Is(err, errNotHonoured) || !strings.Contains(err.Error(), refused)) {
			t.Errorf("%s: %v, want %q", text, err, refused)
		}
	}
}

func TestDecodeTellsEveryFault(t *testing.T) {
	_, err := Decode("f.yaml", []byte(head+"    oops: 1\n    stdin: true\n  hostIPC: true\n  hostPID: true\n"))
	var problems FieldErrors
	if !errors.As(err, &problems) || len(problems) != 3 {
		t.Fatalf("%d problems: %v", len(problems), err)
	}
	for _, name := range []string{"oops", "hostIPC", "hostPID"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named: %q", name, err)
		}
	}
	if problems.Detail() != "" {
		t.Errorf("detail %q, but the message is complete", problems.Detail())
	}
	_, err = Decode("f.yaml", []byte(head+"    a: 1\n    b: 1\n    c: 1\n    d: 1\n    e: 1\n"))
	if !errors.As(err, &problems) || !strings.HasSuffix(err.Error(), "(and 2 more)") {
		t.Fatalf("error %q", err)
	}
	if n := strings.Count(problems.Detail(), "\n"); n != 5 {
		t.Errorf("%d lines of detail: %s", n, problems.Detail())
	}
}

// TestFaultsHaveAnOrder: faults are sorted by line, in a stable order.
func TestFaultsHaveAnOrder(t *testing.T) {
	text := strings.Replace(head, "name: web", "name: web\n  annotations: {a_/a: x, b_/b: x, c_/c: x}", 1) +
		"    resources: {limits: {cpu: -1, memory: -1}}\n" +
		"    readinessProbe: {exec: {command: [a]}, periodSeconds: -1, timeoutSeconds: -1}\n  hostIPC: true\n"
	first := ""
	for range 30 {
		_, err := Decode("f.yaml", []byte(text))
		var problems FieldErrors
		if !errors.As(err, &problems) || len(problems) < 7 || problems[0].Line != 5 {
			t.Fatalf("%d problems: %v", len(problems), err)
		}
		if got := problems.Detail(); first == "" {
			first = got
		} else if got != first {
			t.Fatalf("%s\nand then\n%s", first, got)
		}
	}
}

func TestAcceptedFieldsAreAccepted(t *testing.T) {
	pods, err := Decode("f.yaml", []byte(head+`
    command: [sh, -c]
    args: ["echo $(A)"]
    env: [{name: A, value: "a=b=c"}, {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    volumeMounts: [{name: v, mountPath: /v, readOnly: true}]
    securityContext:
      privileged: false
      allowPrivilegeEscalation: false
      runAsUser: 1000
      capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}
      seccompProfile: {type: Unconfined}
  tolerations: [{operator: Exists}]
  shareProcessNamespace: true
  hostNetwork: false
  automountServiceAccountToken: false
  enableServiceLinks: false
  os: {name: linux}
  volumes:
  - name: v
    emptyDir: {medium: Memory, sizeLimit: 64Mi}
`))
	if err != nil {
		t.Fatal(err)
	}
	if value := pods[0].Spec.Containers[0].Env[0].Value; value != "a=b=c" {
		t.Errorf("environment value %q", value)
	}
}

// TestExplicitDefaults: a field may be set to the API's default, as in a pod from an API server.
func TestExplicitDefaults(t *testing.T) {
	_, err := Decode("f.yaml", []byte(strings.Replace(head, "name: web", "name: web\n  namespace: default\n  generation: 1", 1)+`
    imagePullPolicy: IfNotPresent
    terminationMessagePath: /dev/termination-log
    terminationMessagePolicy: File
    stdin: false
    stdinOnce: false
    tty: false
    resources: {}
    securityContext:
      {privileged: false, allowPrivilegeEscalation: true, readOnlyRootFilesystem: false, runAsNonRoot: false, procMount: Default}
    ports: [{containerPort: 80, protocol: TCP, hostIP: ""}]
    readinessProbe:
      {httpGet: {path: /, port: 80, scheme: HTTP}, periodSeconds: 10, timeoutSeconds: 1, successThreshold: 1, failureThreshold: 3}
    env: [{name: A, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}]
    volumeMounts: [{name: v, mountPath: /v, readOnly: false, recursiveReadOnly: Disabled, mountPropagation: None}]
  restartPolicy: Always
  dnsPolicy: ClusterFirst
  schedulerName: default-scheduler
  serviceAccountName: default
  serviceAccount: default
  automountServiceAccountToken: true
  enableServiceLinks: true
  preemptionPolicy: PreemptLowerPriority
  priority: 0
  hostNetwork: false
  hostPID: false
  hostIPC: false
  hostUsers: true
  setHostnameAsFQDN: false
  shareProcessNamespace: false
  terminationGracePeriodSeconds: 30
  securityContext: {fsGroupChangePolicy: Always, supplementalGroupsPolicy: Merge}
  tolerations: [{effect: NoExecute, key: node.kubernetes.io/not-ready, operator: Exists, tolerationSeconds: 300}]
  volumes: [{name: v, hostPath: {path: /tmp, type: ""}}, {name: c, configMap: {name: c, defaultMode: 420, optional: false}}]
status: {phase: Pending, qosClass: BestEffort}
`))
	if err != nil {
		var problems FieldErrors
		if errors.As(err, &problems) {
			t.Fatal(problems.Detail(), err)
		}
		t.Fatal(err)
	}
}

// FuzzDecode: no input causes a panic, and every accepted pod has a name.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(head))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems: [1, {kind: Pod}]\n---\n&a [*a]\n"))
	f.Add([]byte("a: &a [b]\nkind: *a\n--- {}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		pods, err := Decode("fuzz", data)
		if err == nil && (len(pods) == 0 || pods[0].Name == "") {
			t.Error("accepted without a pod")
		}
	})
}
