package podapi

import (
	"errors"
	"strings"
	"testing"
)

// TestForms: a value of the wrong type is reported with its path and line, without Go's terms.
func TestForms(t *testing.T) {
	for _, test := range []struct {
		name, text, want string
	}{
		{name: "second item", text: head + "  - {name: b, image: 7}\n",
			want: "f.yaml:9: spec.containers[1].image: is a number, and must be text: put it in quotes"},
		{name: "text for a number", text: head + "    ports:\n    - containerPort: 80\n    - containerPort: \"80\"\n",
			want: "f.yaml:11: spec.containers[0].ports[1].containerPort: is text, and must be a whole number"},
		{name: "fraction",
			text: head + "    ports: [{containerPort: 80.5}]\n",
			want: "is 80.5, and must be a whole number of at most 32 bits"},
		{name: "too large",
			text: head + "    ports: [{containerPort: 99999999999}]\n",
			want: "is 99999999999, and must be a whole number of at most 32 bits"},
		{name: "map for a list", text: head + "    env: {A: b}\n", want: "f.yaml:9: spec.containers[0].env: is a map, and must be a list"},
		{name: "list for a map",
			text: head + "    resources: [cpu]\n",
			want: "f.yaml:9: spec.containers[0].resources: is a list, and must be a map of fields"},
		{name: "text for a map", text: head + "    securityContext: root\n", want: "is text, and must be a map of fields"},
		{name: "list for labels",
			text: strings.Replace(head, "name: web", "name: web\n  labels: [a]", 1),
			want: "f.yaml:5: metadata.labels: is a list, and must be a map"},
		{name: "number for a label", text: strings.Replace(head, "name: web", "name: web\n  labels:\n    a.b/c: x\n    v: 1", 1),
			want: "f.yaml:7: metadata.labels.v: is a number, and must be text: put it in quotes"},
		{name: "true for an environment variable", text: head + "    env:\n    - name: A\n      value: on\n",
			want: "f.yaml:11: spec.containers[0].env[0].value: is true or false, and must be text: put it in quotes"},
		{name: "quantity", text: head + "    resources:\n      limits:\n        memory: lots\n",
			want: `f.yaml:11: spec.containers[0].resources.limits.memory: "lots" must be a quantity such as 500m or 64Mi`},
		{name: "list for a quantity", text: head + "    resources: {limits: {memory: [1]}}\n",
			want: "spec.containers[0].resources.limits.memory: is a list, and must be a quantity"},
		{name: "time", text: strings.Replace(head, "name: web", "name: web\n  creationTimestamp: yesterday", 1),
			want: "f.yaml:5: metadata.creationTimestamp: is text, and must be a time such as"},
		{name: "port of a probe", text: head + "    livenessProbe: {tcpSocket: {port: [80]}}\n",
			want: "spec.containers[0].livenessProbe.tcpSocket.port: is a list, and must be a number or text"},
		{name: "in a template",
			text: strings.Replace(workloadOf("apps/v1", "Deployment", "replicas: 2"), "image: \"i:1\"", "image: [i]", 1),
			want: "f.yaml:10: spec.template.spec.containers[0].image: is a list, and must be text"},
		{name: "in a list",
			text: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n" +
				"  metadata: {name: a}\n  spec:\n    hostPID: 1\n    containers: []\n",
			want: "f.yaml:8: items[0].spec.hostPID: is a number, and must be true or false"},
		{name: "by an alias",
			text: "apiVersion: v1\nkind: Pod\nmetadata: &m\n  name: web\n" +
				"  labels: &l {a: 1}\nspec:\n  nodeSelector: *l\n  containers: []\n",
			want: "f.yaml:5: spec.nodeSelector.a: is a number"},
		{name: "the second document", text: head + "---\n" + strings.Replace(head, "image: nginx:1", "image: {}", 1),
			want: "f.yaml:17: spec.containers[0].image: is a map, and must be text"},
		{name: "a letter is missing",
			text: head + "    imagePullPolice: Always\n",
			want: "imagePullPolice: unknown field; do you mean imagePullPolicy?"},
		{name: "letters are exchanged", text: head + "    iamge: x\n", want: "iamge: unknown field; do you mean image?"},
		{name: "another case", text: head + "    ENV: []\n", want: "ENV: unknown field; do you mean env?"},
		{name: "nothing like it", text: head + "    wibblewobble: 1\n", want: "f.yaml:9: spec.containers[0].wibblewobble: unknown field"},
		{name: "unknown, and another type too", text: head + "    tty: x\n  hostNetworking: true\n",
			want: "f.yaml:9: spec.containers[0].tty: is text, and must be true or false; " +
				"f.yaml:10: spec.hostNetworking: unknown field; do you mean hostNetwork?"},
		{name: "an unknown kind", text: strings.Replace(head, "kind: Pod", "kind: Pdo", 1), want: "do you mean Pod?"},
		{name: "a merge that would win",
			text: head + "    env: [&e {name: A, value: b}]\n  - name: c\n    <<: *e\n",
			want: "f.yaml:11: a merge must be the first in its map"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Decode("f.yaml", []byte(test.text))
			if err == nil || !strings.Contains(err.Error(), test.want) || !errors.Is(err, errSyntax) && !errors.Is(err, errNotHonoured) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if err != nil && (strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), "v1.")) {
				t.Errorf("error %v mentions Go", err)
			}
		})
	}
	if _, err := Decode("f.yaml", []byte(head+"    wibblewobble: 1\n")); strings.Contains(err.Error(), "mean") {
		t.Errorf("%v", err)
	}
}

func TestTheSameTwice(t *testing.T) {
	config := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n"
	secret := strings.Replace(config, "ConfigMap", "Secret", 1)
	for _, test := range []struct {
		name  string
		files []string
		want  string // empty for no error
	}{
		{name: "in a file", files: []string{head + "---\n" + head},
			want: "0.yaml:13: metadata.name: Pod default/web appears twice, first at 0.yaml:4"},
		{name: "in two files", files: []string{head, head}, want: "1.yaml:4: metadata.name: Pod default/web appears twice, first at 0.yaml:4"},
		{name: "a workload's", files: []string{
			strings.Replace(workloadOf("apps/v1", "Deployment", "replicas: 1"), "prod", "default", 1), head},
			want: "1.yaml:4: metadata.name: Pod default/web appears twice, first at 0.yaml:3"},
		{name: "in two namespaces", files: []string{head, strings.Replace(head, "name: web", "name: web\n  namespace: prod", 1)}},
		{name: "of two kinds", files: []string{head, config, secret}},
		{name: "of generated names", files: []string{strings.Repeat(strings.Replace(head, "name: web", "generateName: w", 1)+"---\n", 2)}},
		{name: "ConfigMaps", files: []string{head, config, config},
			want: "2.yaml:3: metadata.name: ConfigMap default/web appears twice, first at 1.yaml:3"},
		{name: "Secrets", files: []string{head, secret + "---\n" + secret},
			want: "1.yaml:7: metadata.name: Secret default/web appears twice, first at 1.yaml:3"},
	} {
		var files []File
		for i, text := range test.files {
			files = append(files, File{Name: string(rune('0'+i)) + ".yaml", Data: []byte(text)})
		}
		_, err := ReadAll(files, Options{})
		if (err == nil) != (test.want == "") || err != nil && (err.Error() != test.want || !errors.Is(err, errInvalid)) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

func TestWhatNeedsACluster(t *testing.T) {
	object := func(version, kind string) string {
		return "---\napiVersion: " + version + "\nkind: " + kind + "\nmetadata: {name: x}\n"
	}
	services := object("v1", "Service") + object("v1", "Service") + object("v1", "Service")
	for _, test := range []struct {
		name, text string
		refused    string // without the option
		warnings   string // with it
		still      string // refused with it
	}{
		{name: "services",
			text: services + "---\n" + head, refused: "f.yaml:3: kind: Service (v1): there are no services; publish a port with hostPort or -p",
			warnings: "f.yaml:3: Service (v1): skipped, and 2 more: there are no services; publish a port with hostPort or -p"},
		{name: "several",
			text:    object("v1", "Namespace") + object("networking.k8s.io/v1", "Ingress") + object("v1", "ServiceAccount") + "---\n" + head,
			refused: "f.yaml:3: kind: Namespace (v1): a namespace is part of a pod's name",
			warnings: "f.yaml:11: ServiceAccount (v1): skipped: there is no API server\n" +
				"f.yaml:3: Namespace (v1): skipped: a namespace is part of a pod's name, and needs no object\n" +
				"f.yaml:7: Ingress (networking.k8s.io/v1): skipped: there are no services; publish a port with hostPort or -p"},
		{name: "a custom resource",
			text:     object("cert-manager.io/v1", "Certificate") + "---\n" + head,
			refused:  "Certificate (cert-manager.io/v1): there is no controller for it",
			warnings: "f.yaml:3: Certificate (cert-manager.io/v1): skipped: there is no controller for it"},
		{name: "in a list",
			text: "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service, metadata: {name: a}}\n" +
				"- {apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {containers: [{name: c, image: i}]}}\n",
			refused:  "f.yaml:4: items[0].kind: Service",
			warnings: "f.yaml:4: Service (v1): skipped: there are no services; publish a port with hostPort or -p"},
		{name: "nothing else",
			text: services, refused: "Service",
			warnings: "f.yaml:3: Service (v1): skipped, and 2 more: there are no services; publish a port with hostPort or -p"},
		{name: "a typing error", text: object("v1", "Pdo") + "---\n" + head, refused: "Pdo", still: "f.yaml:3: kind: Pdo (v1): only Pods"},
		{name: "an old version",
			text: object("extensions.k8s.io/v1beta1", "Deployment") + "---\n" + head, refused: "apiVersion must be apps/v1",
			still: "apiVersion must be apps/v1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			files := []File{{Name: "f.yaml", Data: []byte(test.text)}}
			if _, err := ReadAll(files, Options{}); !errors.Is(err, errNotHonoured) || !strings.Contains(err.Error(), test.refused) {
				t.Errorf("without the option: %v, want %q", err, test.refused)
			}
			found, err := ReadAll(files, Options{IgnoreUnsupported: true})
			if test.still != "" {
				if !errors.Is(err, errNotHonoured) || !strings.Contains(err.Error(), test.still) {
					t.Errorf("with the option: %v, want %q", err, test.still)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(found.Warnings, "\n"); got != test.warnings {
				t.Errorf("warnings %q, want %q", got, test.warnings)
			}
		})
	}
}
