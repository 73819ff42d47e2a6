package e2e

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/internal/ociimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
)

// objects are the ConfigMaps and Secrets of these tests.
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
stringData: {key: hush, other: unheard-of}
---
`

// filled are the containers of one pod. Each shows one kind of reference.
var filled = []said{
	{
		name: "config",
		yaml: `volumeMounts: [{name: config, mountPath: /v}]`,
		script: `ls -A /v | grep -v '^\.\.2'
			cat /v/a /v/b.conf
			od -An -tx1 /v/bin
			stat -c '%a %u %g' -L /v/a
			touch /v/x 2>&1 | sed 's/.*: //'
			readlink /v/a
			grep -c ' /v tmpfs ro' /proc/mounts`,
		want: "..data\na\nb.conf\nbin\nprog\nonetwo 00 01 ff\n644 0 77\nRead-only file system\n..data/a\n1",
	},
	{
		name: "items",
		yaml: `volumeMounts: [{name: items, mountPath: /v}]`,
		script: `cd /v
			find . -type f | grep -v '/prog$' | sed 's/[.][.]2[^/]*/SET/'
			cat deep/er/a
			./prog
			stat -c %a -L prog deep/er/a`,
		want: "./SET/deep/er/a\noneruns\n755\n644",
	},
	{
		name:   "secret",
		yaml:   `volumeMounts: [{name: secret, mountPath: /v}], securityContext: {runAsUser: 1000}`,
		script: `cat /v/key; stat -c ' %a %u %g' -L /v/key; id -G`,
		want:   "hush 440 0 77\n1000 77 2000",
	},
	{
		name: "downward",
		yaml: `volumeMounts: [{name: downward, mountPath: /v}], resources: {limits: {memory: 64Mi}, requests: {cpu: 10m}}`,
		script: `grep -v controller-uid= /v/labels # that is another each time
			cat /v/note /v/cpu /v/memory
			echo
			[ $(cat /v/limit) -ge 1 ] && echo limited`,
		want: "app=\"filled\"\nbatch.kubernetes.io/job-name=\"filled\"\njob-name=\"filled\"\ntier=\"x\"\nsaid1064\nlimited",
	},
	{
		name:   "projected",
		yaml:   `volumeMounts: [{name: projected, mountPath: /v}]`,
		script: `cd /v; cat a secrets/key name; stat -c ' %a' -L a`,
		want:   "onehushfilled 444",
	},
	{
		name:   "optional",
		yaml:   `volumeMounts: [{name: optional, mountPath: /v}]`,
		script: `ls /v; echo none`,
		want:   "none",
	},
	{
		name: "env",
		yaml: `env: [{name: A, valueFrom: {configMapKeyRef: {name: settings, key: a}}},
      {name: K, valueFrom: {secretKeyRef: {name: keys, key: key}}},
      {name: B, value: "$(A) $(K) $(P_a)"},
      {name: NONE, valueFrom: {secretKeyRef: {name: gone, key: key, optional: true}}},
      {name: LIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}},
      {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}],
      envFrom: [{prefix: P_, configMapRef: {name: settings}}, {configMapRef: {name: gone, optional: true}}, {secretRef: {name: keys}}],
      resources: {limits: {memory: 64Mi}}`,
		script: `echo "$A $K $B ${NONE-unset} $LIMIT $other"
			[ -n "$IP" ] && echo address
			env | grep -c ^P_`,
		want: "one hush one hush one unset 64 unheard-of\naddress\n2",
	},
	{
		name: "group",
		yaml: `volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}],
      securityContext: {runAsUser: 1000, runAsGroup: 1000}`,
		script: `touch /disk/x /memory/x; stat -c '%a %g' /disk /memory; stat -c %g /disk/x /memory/x`,
		want:   "2777 77\n2777 77\n77\n77",
	},
	{
		name: "parts",
		yaml: `env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}],
      volumeMounts: [{name: config, mountPath: /etc/one.conf, subPath: a},
      {name: items, mountPath: /deep, subPath: deep/er},
      {name: disk, mountPath: /part, subPath: made/here},
      {name: disk, mountPath: /named, subPathExpr: "of/$(POD)"},
      {name: disk, mountPath: /all},
      {name: tool, mountPath: /hello, subPath: data/hello}]`,
		script: `cat /etc/one.conf /deep/a /hello
			echo
			echo x >/part/f
			echo y >/named/f
			cd /all
			find made of -type f
			stat -c %a made/here
			touch /etc/one.conf 2>&1 | sed 's/.*: //'`,
		want: "oneonefrom an image\nmade/here/f\nof/filled/f\n2777\nRead-only file system",
	},
	{
		name: "image",
		yaml: `volumeMounts: [{name: tool, mountPath: /tool}, {name: same, mountPath: /same, subPath: bin}]`,
		script: `cat /tool/data/hello
			echo
			ls /tool
			touch /tool/x 2>&1 | sed 's/.*: //'
			[ -x /same/busybox ] && echo itself`,
		want: "from an image\ndata\nRead-only file system\nitself",
	},
	{
		name: "options",
		yaml: `volumeMounts: [{name: disk, mountPath: /disk, bindMountOptions: [noexec, nosuid]},
      {name: disk, mountPath: /ro, readOnly: true, recursiveReadOnly: Enabled, mountPropagation: None},
      {name: sticky, mountPath: /sticky, mountPropagation: HostToContainer}]`,
		script: `cp /bin/busybox /disk/prog-x
			/disk/prog-x 2>&1 true | sed 's/.*: //'
			grep -o ' /disk ext4 rw,nosuid,noexec' /proc/mounts
			touch /ro/x 2>&1 | sed 's/.*: //'
			stat -c %a /sticky`,
		want: "Permission denied\n /disk ext4 rw,nosuid,noexec\nRead-only file system\n3770",
	},
	{
		name: "limited",
		yaml: `volumeMounts: [{name: small, mountPath: /small}]`,
		script: `dd if=/dev/zero of=/small/x bs=64k count=31 2>/dev/null && echo fits
			mkdir /small/in
			dd if=/dev/zero of=/small/in/y bs=64k count=4 2>&1 | grep -o 'quota exceeded'
			df -m /small | awk 'END{print $2}'
			touch /small/still && rm /small/x && dd if=/dev/zero of=/small/z bs=64k count=16 2>/dev/null && echo again`,
		want: "fits\nquota exceeded\n2\nagain",
	},
	{
		name: "live",
		yaml: `volumeMounts: [{name: config, mountPath: /v}, {name: secret, mountPath: /s}, {name: config, mountPath: /part, subPath: a}]`,
		script: `cat /v/a /s/key
			echo
			first=$(readlink /v/..data)
			until [ "$(cat /v/a)" = changed ] && [ "$(cat /s/key)" = louder ]; do sleep 0.05; done
			cat /part
			echo
			[ "$(readlink /v/..data)" != "$first" ] && ls -A /v | grep -v ..2
			until [ "$(cat /v/a)" = again ]; do sleep 0.05; done
			cat /s/key`,
		want: "onehush\none\n..data\na\nnew\nlouder",
	},
}

// TestVolumes shows in a real VM what ConfigMaps, Secrets and the downward API bring into containers. Volumes
// follow their changes.
func TestVolumes(t *testing.T) {
	t.Parallel()
	w := newForkingWorld(t)
	tool := testimage.Build(t, []ociimage.Entry{ociimage.Dir("data", 0o755), ociimage.File("data/hello", 0o644, "from an image")})
	w.must(t, "", "image", "load", "oci:"+tool, "localhost/tool:test")
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
      - name: downward
        downwardAPI:
          items:
          - {path: labels, fieldRef: {fieldPath: metadata.labels}}
          - {path: note, fieldRef: {fieldPath: "metadata.annotations['note']"}}
          - {path: cpu, resourceFieldRef: {containerName: downward, resource: requests.cpu, divisor: 1m}}
          - {path: memory, resourceFieldRef: {containerName: downward, resource: limits.memory, divisor: 1Mi}}
          - {path: limit, resourceFieldRef: {containerName: downward, resource: limits.cpu}}
      - name: projected
        projected:
          defaultMode: 0444
          sources:
          - {configMap: {name: settings, items: [{key: a, path: a}]}}
          - {secret: {name: keys, items: [{key: key, path: secrets/key}]}}
          - {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
      - {name: optional, configMap: {name: gone, optional: true}}
      - {name: disk, emptyDir: {}}
      - {name: memory, emptyDir: {medium: Memory}}
      - {name: small, emptyDir: {sizeLimit: 2Mi}}
      - {name: sticky, emptyDir: {mode: 01700}}
      - {name: tool, image: {reference: "localhost/tool:test"}}
      - {name: same, image: {reference: "` + image + `", pullPolicy: Never}}
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
	w.must(t, `{apiVersion: v1, kind: List, items: [
  {apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: changed, new: x}},
  {apiVersion: v1, kind: Secret, metadata: {name: keys}, stringData: {key: louder, other: unheard-of}}]}`, "update", "filled", "-f", "-")
	for !strings.Contains(w.must(t, "", "logs", "-c", "live", "filled"), "new") {
		time.Sleep(20 * time.Millisecond)
	}
	// The next engine keeps updating the volumes of the pods that it adopts.
	w.shutdown(t)
	w.must(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: again}}", "update", "filled", "-f", "-")
	if code := w.run(t, "", "wait", "filled").ProcessState.ExitCode(); code != 0 {
		t.Errorf("wait: exit code %d", code)
	}
	for _, c := range filled {
		if got := strings.TrimSuffix(w.must(t, "", "logs", "-c", c.name, "filled"), "\n"); got != c.want {
			t.Errorf("%s: %s", c.name, cmp.Diff(c.want, got))
		}
	}
	testSecrecy(t, w)
	testEscapes(t, w)
	w.must(t, "", "rm", "filled")
	if left, err := os.ReadDir(filepath.Join(w.roots().Instance("run"), "volumes")); err == nil && len(left) > 0 {
		t.Errorf("left of the pod's volumes: %v", left)
	}
}

// testEscapes: a part of a volume behind a link that leads out of it is not mounted.
func testEscapes(t *testing.T, w *world) {
	t.Helper()
	c := w.run(t, `{apiVersion: v1, kind: Pod, metadata: {name: escapes}, spec: {restartPolicy: Never, volumes: [{name: v, emptyDir: {}}],
  initContainers: [{name: plants, image: "`+image+`", command: [sh, -c, "mkdir /v/in; ln -s ../../../../../etc /v/up; ln -s in /v/ok"],
    volumeMounts: [{name: v, mountPath: /v}]}],
  containers: [{name: fine, image: "`+image+`", command: ["true"], volumeMounts: [{name: v, mountPath: /v, subPath: ok/more}]},
    {name: out, image: "`+image+`", command: [cat, /v/passwd], volumeMounts: [{name: v, mountPath: /v, subPath: up}]}]}}`, "run", "-q", "-")
	if c.ProcessState.ExitCode() != 125 ||
		!strings.Contains(c.err.String(), "container out") || !strings.Contains(c.err.String(), "leads out of the volume") {
		t.Errorf("a link out of a volume: %v", c)
	}
}

// testSecrecy searches for the secret's values in everything that is shown or stored of a pod, except for the one
// file that must have them.
func testSecrecy(t *testing.T, w *world) {
	t.Helper()
	const value = "unheard-of"
	encoded := base64.StdEncoding.EncodeToString([]byte(value))
	if shown := w.must(t, "", "inspect", "-o", "json", "filled") + w.engineLog(); strings.Contains(shown, value) {
		t.Error("a secret is shown")
	}
	found := map[string]bool{}
	for _, root := range []string{w.roots().Data, w.roots().State} {
		err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
			if errors.Is(err, os.ErrNotExist) {
				return nil // removed meanwhile
			}
			if err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 || strings.Contains(path, "/logs/") {
				return err
			}
			text, err := os.ReadFile(path)
			if err == nil && (strings.Contains(string(text), value) || strings.Contains(string(text), encoded)) {
				found[filepath.Base(path)] = true
				if info.Mode().Perm() != 0o600 {
					t.Errorf("a secret lies in %s, mode %v", path, info.Mode())
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	// The latter is a container's environment, on its way to the guest.
	if diff := cmp.Diff(map[string]bool{"objects.json": true, "config.json": true}, found); diff != "" {
		t.Errorf("where the secret lies: %s", diff)
	}
	const volume = "volumes: [{name: v, secret: {secretName: gone}}], "
	c := w.run(t, strings.ReplaceAll(pod("waits", "Never", "true"), "containers: [{", volume+"containers: [{"), "run", "-q", "-")
	if c.ProcessState.ExitCode() != 125 || !strings.Contains(c.err.String(), `secret "gone" not found`) {
		t.Errorf("a secret that is not there: %v", c)
	}
}
