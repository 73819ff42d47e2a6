package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// objects are what the volumes and environments of these tests are made of.
const objects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {a: one, b.conf: two, prog: "#!/bin/sh\necho runs"}
binaryData: {bin: AAH/}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {key: hush, other: still}
---
`

// filled are the containers of one pod; each shows what one kind of reference
// brings.
var filled = []said{
	{"config", `volumeMounts: [{name: config, mountPath: /v}]`,
		`ls -A /v | grep -v '^\.\.2'; cat /v/a /v/b.conf; od -An -tx1 /v/bin; stat -c '%a %u %g' -L /v/a; touch /v/x 2>&1 | sed 's/.*: //'; readlink /v/a; grep -c ' /v tmpfs ro' /proc/mounts`,
		"..data\na\nb.conf\nbin\nprog\nonetwo 00 01 ff\n644 0 77\nRead-only file system\n..data/a\n1"},
	{"items", `volumeMounts: [{name: items, mountPath: /v}]`,
		`cd /v; find . -type f | grep -v '/prog$' | sed 's/[.][.]2[^/]*/SET/'; cat deep/er/a; ./prog; stat -c %a -L prog deep/er/a`,
		"./SET/deep/er/a\noneruns\n755\n644"},
	{"secret", `volumeMounts: [{name: secret, mountPath: /v}], securityContext: {runAsUser: 1000}`,
		`cat /v/key; stat -c ' %a %u %g' -L /v/key; id -G`, "hush 440 0 77\n0 77"},
	{"downward", `volumeMounts: [{name: downward, mountPath: /v}], resources: {limits: {memory: 64Mi}, requests: {cpu: 10m}}`,
		`cat /v/labels; echo; cat /v/note /v/cpu /v/memory; echo; [ $(cat /v/limit) -ge 1 ] && echo limited`,
		"app=\"filled\"\nbatch.kubernetes.io/job-name=\"filled\"\njob-name=\"filled\"\ntier=\"x\"\nsaid1064\nlimited"},
	{"projected", `volumeMounts: [{name: projected, mountPath: /v}]`, `cd /v; cat a secrets/key name; stat -c ' %a' -L a`, "onehushfilled 444"},
	{"optional", `volumeMounts: [{name: optional, mountPath: /v}]`, `ls /v; echo none`, "none"},
	{"env", `env: [{name: A, valueFrom: {configMapKeyRef: {name: settings, key: a}}}, {name: K, valueFrom: {secretKeyRef: {name: keys, key: key}}},
      {name: B, value: "$(A) $(K) $(P_a)"}, {name: NONE, valueFrom: {secretKeyRef: {name: gone, key: key, optional: true}}},
      {name: LIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}, {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}],
      envFrom: [{prefix: P_, configMapRef: {name: settings}}, {configMapRef: {name: gone, optional: true}}, {secretRef: {name: keys}}], resources: {limits: {memory: 64Mi}}`,
		`echo "$A $K $B ${NONE-unset} $LIMIT $other"; [ -n "$IP" ] && echo address; env | grep -c ^P_`,
		"one hush one hush one unset 64 still\naddress\n2"},
	{"group", `volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}], securityContext: {runAsUser: 1000, runAsGroup: 1000}`,
		`touch /disk/x /memory/x; stat -c '%a %g' /disk /memory; stat -c %g /disk/x /memory/x`, "2777 77\n2777 77\n77\n77"},
	{"live", `volumeMounts: [{name: config, mountPath: /v}, {name: secret, mountPath: /s}]`,
		`cat /v/a /s/key; echo; first=$(readlink /v/..data); until [ "$(cat /v/a)" = changed ] && [ "$(cat /s/key)" = louder ]; do sleep 0.05; done; [ "$(readlink /v/..data)" != "$first" ] && ls -A /v | grep -v ..2`,
		"onehush\n..data\na\nnew"},
}

// TestVolumes shows in a real machine what ConfigMaps, Secrets and the downward
// API bring into containers, and that volumes follow their changes.
func TestVolumes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var y strings.Builder
	y.WriteString(objects + `apiVersion: batch/v1
kind: Job
metadata: {name: filled}
spec:
  template:
    metadata: {labels: {app: filled, tier: x}, annotations: {note: said}}
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      securityContext: {fsGroup: 77}
      volumes:
      - {name: config, configMap: {name: settings}}
      - {name: items, configMap: {name: settings, items: [{key: a, path: deep/er/a}, {key: prog, path: prog, mode: 0755}]}}
      - {name: secret, secret: {secretName: keys, defaultMode: 0400}}
      - {name: downward, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}, {path: note, fieldRef: {fieldPath: "metadata.annotations['note']"}},
          {path: cpu, resourceFieldRef: {containerName: downward, resource: requests.cpu, divisor: 1m}}, {path: memory, resourceFieldRef: {containerName: downward, resource: limits.memory, divisor: 1Mi}},
          {path: limit, resourceFieldRef: {containerName: downward, resource: limits.cpu}}]}}
      - {name: projected, projected: {defaultMode: 0444, sources: [{configMap: {name: settings, items: [{key: a, path: a}]}}, {secret: {name: keys, items: [{key: key, path: secrets/key}]}}, {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}}
      - {name: optional, configMap: {name: gone, optional: true}}
      - {name: disk, emptyDir: {}}
      - {name: memory, emptyDir: {medium: Memory}}
      containers:
`)
	for _, c := range filled {
		script, err := json.Marshal(c.script)
		if err != nil {
			t.Fatal(err)
		}
		y.WriteString("      - {name: " + c.name + ", image: " + image + ", command: [sh, -c, " + string(script) + "], " + c.yaml + "}\n")
	}
	w.must(t, y.String(), "run", "-d", "-q", "-")
	for !strings.Contains(w.must(t, "", "logs", "-c", "live", "filled"), "onehush") {
		time.Sleep(20 * time.Millisecond)
	}
	w.must(t, "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: changed, new: x}}, {apiVersion: v1, kind: Secret, metadata: {name: keys}, stringData: {key: louder}}]}",
		"update", "filled", "-f", "-")
	if code := w.run(t, "", "wait", "filled").ProcessState.ExitCode(); code != 0 {
		t.Errorf("wait: exit code %d", code)
	}
	for _, c := range filled {
		if got := strings.TrimSuffix(w.must(t, "", "logs", "-c", c.name, "filled"), "\n"); got != c.want {
			t.Errorf("%s: %s", c.name, cmp.Diff(c.want, got))
		}
	}
	testSecrecy(t, w)
	w.must(t, "", "rm", "filled")
	if left, err := os.ReadDir(filepath.Join(w.roots().Instance("run"), "volumes")); err == nil && len(left) > 0 {
		t.Errorf("left of the pod's volumes: %v", left)
	}
}

// testSecrecy looks for the secret's values in all that is shown or kept of a pod
// beside the one file that is theirs.
func testSecrecy(t *testing.T, w *world) {
	t.Helper()
	shown := w.must(t, "", "inspect", "-o", "json", "filled") + w.supervisorLog()
	for _, value := range []string{"hush", "louder", "still"} {
		if strings.Contains(shown, value) {
			t.Errorf("%q is shown", value)
		}
	}
	for _, root := range []string{w.roots().Data, w.roots().State} {
		err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
			if err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 || strings.Contains(path, "/logs/") {
				return nil
			}
			text, err := os.ReadFile(path)
			if err == nil && strings.Contains(string(text), "louder") && (filepath.Base(path) != "objects.json" || info.Mode().Perm() != 0o600) {
				t.Errorf("a secret lies in %s, mode %v", path, info.Mode())
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	c := w.run(t, strings.ReplaceAll(pod("waits", "Never", "true"), "containers: [{", "volumes: [{name: v, secret: {secretName: gone}}], containers: [{"), "run", "-q", "-")
	if c.ProcessState.ExitCode() != 125 || !strings.Contains(c.err.String(), `secret "gone" not found`) {
		t.Errorf("a secret that is not there: %v", c)
	}
}
