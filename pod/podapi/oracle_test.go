package podapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// full is a pod with most of the fields that the API restricts.
const full = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"default",
"labels":{"app":"web"},"annotations":{"note":"x"}},
"spec":{"restartPolicy":"Always","terminationGracePeriodSeconds":30,"activeDeadlineSeconds":60,"hostname":"host","subdomain":"sub",
"serviceAccountName":"default","schedulerName":"default-scheduler","priorityClassName":"high",
"dnsPolicy":"None","enableServiceLinks":true,
"dnsConfig":{"nameservers":["10.0.0.1"],"searches":["example.org"],"options":[{"name":"ndots","value":"2"}]},
"hostAliases":[{"ip":"10.0.0.2","hostnames":["foo.example"]}],"imagePullSecrets":[{"name":"pull"}],
"readinessGates":[{"conditionType":"example.org/ready"}],
"tolerations":[{"key":"k","operator":"Equal","value":"v","effect":"NoExecute","tolerationSeconds":3}],
"securityContext":{"runAsUser":1,"runAsGroup":2,"fsGroup":3,"supplementalGroups":[4],"fsGroupChangePolicy":"Always",
 "sysctls":[{"name":"net.core.somaxconn","value":"1"}],"seccompProfile":{"type":"RuntimeDefault"}},
"initContainers":[{"name":"init","image":"i"},{"name":"side","image":"i","restartPolicy":"Always"}],
"containers":[{"name":"main","image":"nginx:1","imagePullPolicy":"Always","command":["a"],"args":["b"],"workingDir":"/w",
 "terminationMessagePath":"/m","terminationMessagePolicy":"File",
 "ports":[{"name":"http","containerPort":80,"hostPort":8080,"hostIP":"127.0.0.1","protocol":"TCP"}],
 "env":[{"name":"A","value":"b"},{"name":"B","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},
  {"name":"C","valueFrom":{"configMapKeyRef":{"name":"cm","key":"k","optional":true}}},
  {"name":"D","valueFrom":{"secretKeyRef":{"name":"s","key":"k","optional":true}}},
  {"name":"E","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu","containerName":"main","divisor":"1m"}}}],
 "envFrom":[{"prefix":"P_","configMapRef":{"name":"cm","optional":true}},{"secretRef":{"name":"s","optional":true}}],
 "resources":{"limits":{"cpu":"1","memory":"64Mi","ephemeral-storage":"1Gi"},"requests":{"cpu":"500m","memory":"64Mi"}},
 "livenessProbe":{"httpGet":{"path":"/","port":80,"scheme":"HTTP","host":"h","httpHeaders":[{"name":"X-A","value":"b"}]},
  "initialDelaySeconds":1,"periodSeconds":1,"timeoutSeconds":1,"successThreshold":1,"failureThreshold":1,"terminationGracePeriodSeconds":5},
 "readinessProbe":{"exec":{"command":["a"]}},"startupProbe":{"tcpSocket":{"port":"http","host":"h"}},
 "lifecycle":{"postStart":{"exec":{"command":["a"]}},"preStop":{"sleep":{"seconds":1}}},
 "securityContext":{"runAsUser":1,"runAsGroup":2,"capabilities":{"add":["CHOWN"],"drop":["ALL"]},"privileged":false,"procMount":"Default"},
 "volumeMounts":[{"name":"e","mountPath":"/e","subPath":"s"},{"name":"h","mountPath":"/h","readOnly":true},{"name":"c","mountPath":"/c"},
  {"name":"x","mountPath":"/x","subPathExpr":"$(A)"},{"name":"p","mountPath":"/p"},{"name":"d","mountPath":"/d"}]}],
"volumes":[{"name":"e","emptyDir":{"medium":"Memory","sizeLimit":"1Mi"}},{"name":"h","hostPath":{"path":"/tmp","type":"Directory"}},
 {"name":"c","configMap":{"name":"cm","optional":true,"defaultMode":420,"items":[{"key":"k","path":"p/q","mode":256}]}},
 {"name":"x","secret":{"secretName":"s","optional":true,"defaultMode":420,"items":[{"key":"k","path":"p","mode":256}]}},
 {"name":"p","persistentVolumeClaim":{"claimName":"pvc","readOnly":false}},
 {"name":"d","projected":{"defaultMode":420,"sources":[{"configMap":{"name":"cm","optional":true,"items":[{"key":"k","path":"a"}]}},
  {"secret":{"name":"s","optional":true}},{"downwardAPI":{"items":[{"path":"l","fieldRef":{"fieldPath":"metadata.labels"}}]}}]}}]}}`

// texts and numbers replace a value of their kind.
var (
	texts = []any{"", " ", "a b", "a\nb", "UPPER", "a_b", "a.b", "-a", "a-", "relative/path", "/a/../b", "../a",
		"/a:b", "a:b", "a,b", "a=b", "é", ".", "..",
		"..data", strings.Repeat("a", 64), strings.Repeat("a", 254),
		"0", "65536", "$(A)", "10.0.0.1", "::1", "999.0.0.1", "example.org/name",
		"nosuch", "metadata.annotations['x']", "metadata.labels['a b']", "requests.memory", "*"}
	numbers = []any{-1, 0, 1, 512, 513, 65535, 65536, 1 << 31, 1 << 32, "1", "x"}
)

// mutants calls visit with each document that differs from value in one leaf: the leaf at a path has another value, or
// is missing.
func mutants(value any, path string, replace func(any), visit func(path string)) {
	try := func(all []any, was any) {
		for _, one := range all {
			replace(one)
			visit(fmt.Sprintf("%s=%v", path, one))
		}
		replace(was)
	}
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			was := v[key]
			delete(v, key)
			visit(path + "." + key + " is not there")
			v[key] = was
			mutants(was, path+"."+key, func(to any) { v[key] = to }, visit)
		}
	case []any:
		try([]any{[]any{}, append(slices.Clone(v), v[0])}, v)
		for i := range v {
			mutants(v[i], fmt.Sprintf("%s[%d]", path, i), func(to any) { v[i] = to }, visit)
		}
	case string:
		try(texts, v)
	case float64:
		try(numbers, v)
	case bool:
		try([]any{!v}, v)
	}
}

// TestAsTheAPIServer compares the verdicts on pods that differ from one in a single value with the API server's
// validation.
func TestAsTheAPIServer(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it builds Kubernetes' validation")
	}
	program, err := exec.CommandContext(t.Context(), "../../hack/build-once", "podverdicts").Output()
	if err != nil {
		t.Fatalf("build the API server's validation: %v", err)
	}
	var pod any
	if err := json.Unmarshal([]byte(full), &pod); err != nil {
		t.Fatal(err)
	}
	var names []string
	var in bytes.Buffer
	add := func(name string) {
		text, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
		in.Write(append(text, '\n'))
	}
	add("the pod itself")
	mutants(pod, "", func(any) {}, add)
	cmd := exec.CommandContext(t.Context(), strings.TrimSpace(string(program)))
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in.Bytes()), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	verdicts := json.NewDecoder(bytes.NewReader(out))
	for i, text := range bytes.Split(bytes.TrimSpace(in.Bytes()), []byte("\n")) {
		var theirs []string
		if err := verdicts.Decode(&theirs); err != nil {
			t.Fatal(err)
		}
		_, err := One("f", text)
		ours := invalid(err)
		if why := tolerated(names[i], theirs); (len(ours) > 0) != (len(theirs) > 0) && why == "" {
			t.Errorf("%.200s: here %q, the API server %q", names[i], ours, theirs)
		}
	}
	t.Logf("%d pods", len(names))
}

// invalid returns the faults in err except fields that are not honoured.
func invalid(err error) (out []string) {
	var faults FieldErrors
	if err != nil && !errors.As(err, &faults) {
		return []string{err.Error()}
	}
	for _, one := range faults {
		if !errors.Is(one, errNotHonoured) {
			out = append(out, one.Error())
		}
	}
	return out
}

// stricter are fields where the API accepts values that cannot work, which are refused here before the start.
var stricter = map[string]string{
	".kind": "a document says what it is", ".apiVersion": "a document says what it is",
	".spec.containers[0].securityContext.capabilities": "the runtime knows no such capability",
	".spec.containers[0].terminationMessagePath":       "the runtime has no place for the file",
	".spec.containers[0].ports[0].hostIP":              "the port could not be published",
	".spec.volumes[1].hostPath.path":                   "the path cannot exist",
	".spec.volumes[4].persistentVolumeClaim.claimName": "there can be no such claim",
	".spec.dnsConfig.options":                          "a space ends an option of resolv.conf",
}

// tolerated returns why a verdict is intentionally stricter than the API server's; empty for no reason.
func tolerated(name string, theirs []string) string {
	for place, why := range stricter {
		if strings.HasPrefix(name, place) && len(theirs) == 0 {
			return why
		}
	}
	if strings.Contains(name, ".mountPath=") && len(theirs) == 0 && (strings.Contains(name, ":") || strings.HasSuffix(name, ".")) {
		return "the root, and a path with a colon, are no places for a volume"
	}
	return ""
}
