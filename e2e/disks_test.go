package e2e

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// holder is a pod with a claim's disk. It writes numbers there and prints each number once it is on the disk.
const holder = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 100Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: holder}
spec:
  terminationGracePeriodSeconds: 0
  securityContext: {runAsUser: 999, runAsGroup: 999, fsGroup: 1234}
  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]
  containers:
  - name: c
    image: IMAGE
    command:
    - sh
    - -c
    - 'umask 022; i=$(cat /v/n 2>/dev/null || echo 0); echo begun at $i;
      while :; do i=$((i+1)); echo $i >/v/next && mv /v/next /v/n && sync && echo $i; sleep 0.01; done'
    volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /part, subPath: a/b}]
`

// TestDisk: a disk outlives its pod, engine and VM. It has the requested size, can grow, and belongs to one pod at
// a time.
func TestDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	document := strings.ReplaceAll(holder, "IMAGE", image)
	w.must(t, document, "run", "-d", "-")
	w.soon(t, `begun at 0\n1\n`, "logs", "holder")
	inside := func(script string) string {
		t.Helper()
		return w.must(t, "", "exec", "holder", "--", "sh", "-c", script)
	}
	if got := inside("touch /part/f; stat -c '%u %g %a' /v /part; stat -c %g /v/a/b/f"); got != "0 1234 2777\n0 1234 2777\n1234\n" {
		t.Errorf("owners: %q", got)
	}
	if size := kilobytes(t, inside("df -k /v | tail -1")); size < 80<<10 || size > 100<<10 {
		t.Errorf("it has %d KiB", size)
	}
	c := w.run(t, "", "run", "--rm", "-q", "-v", "data:/d", image, "ls", "/d")
	if c.ProcessState.ExitCode() == 0 || !strings.Contains(c.err.String(), `volume "data": pod default/holder has it: in use`) {
		t.Errorf("a second pod: %v", c)
	}
	if got := inside("dd if=/dev/zero of=/v/full bs=1M 2>&1; rm /v/full"); !strings.Contains(got, "No space left on device") {
		t.Errorf("a full disk: %q", got)
	}

	if out := w.must(t, "", "volume", "resize", "data", "200Mi"); out != "data 210 MB\n" {
		t.Errorf("resize: %q", out)
	}
	if size := kilobytes(t, inside("df -k /v | tail -1")); size < 160<<10 || size > 200<<10 {
		t.Errorf("grown, while it is in use, to %d KiB", size)
	}

	grownTogether(t, w)

	// The VM is killed while it writes. All synced data must survive.
	last := w.lastNumber(t)
	for _, p := range w.processes() {
		if strings.HasPrefix(p.qemu(), "bulkhead-") {
			if err := kill(p.pid); err != nil {
				t.Fatal(err)
			}
		}
	}
	killed := w.lastNumber(t)
	w.soon(t, `begun at [1-9]`, "logs", "holder")
	begun := regexp.MustCompile(`begun at (\d+)`).FindStringSubmatch(w.must(t, "", "logs", "holder"))
	if n, err := strconv.Atoi(begun[1]); err != nil || n < killed || n < last {
		t.Errorf("%d were written, but %v exists", killed, begun)
	}
	if err := kill(w.engine()); err != nil {
		t.Fatal(err)
	}
	inside("cat /v/n")

	w.must(t, "", "stop", "holder")
	w.must(t, "", "volume", "resize", "data", "300Mi")
	w.must(t, "", "start", "holder")
	if size := kilobytes(t, inside("df -k /v | tail -1")); size < 240<<10 || size > 300<<10 {
		t.Errorf("grown, while no pod had it, to %d KiB", size)
	}
	w.must(t, "", "rm", "-f", "holder")
	got := w.must(t, "", "run", "--rm", "-q", "-v", "data:/d:ro", image, "sh", "-c", "ls /d/a/b; echo x >/d/x || echo refused")
	if !strings.HasPrefix(got, "f\n") || !strings.Contains(got, "refused") {
		t.Errorf("to be read: %q", got)
	}
	again := strings.Replace(document, "100Mi", "400Mi", 1)
	w.must(t, again, "run", "-d", "-")
	w.soon(t, `begun at [1-9]`, "logs", "holder")
	if size := kilobytes(t, inside("df -k /v | tail -1")); size < 330<<10 || size > 400<<10 {
		t.Errorf("grown by its claim to %d KiB", size)
	}
	w.must(t, "", "volume", "rm", "-f", "data")
	if out := w.must(t, "", "ps", "-a", "-q"); out != "" {
		t.Errorf("its pod is left: %s", out)
	}
	w.end(t)
}

// grownTogether: of concurrent commands that enlarge one disk, none shrinks it again.
func grownTogether(t *testing.T, w *world) {
	t.Helper()
	for size := 202; size <= 210; size += 2 {
		one := w.start(t, "", "volume", "resize", "data", fmt.Sprintf("%dMi", size))
		other := w.start(t, "", "volume", "resize", "data", fmt.Sprintf("%dMi", size-1))
		one.wait(t)
		other.wait(t) // refused if it came late
		if out, want := w.must(t, "", "volume", "inspect", "data", "-o", "jsonpath={..size}"), strconv.Itoa(size<<20); out != want {
			t.Fatalf("it has %q bytes, and not %s", out, want)
		}
	}
}

// bare is a pod with a disk without a file system.
const bare = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: raw}
spec: {accessModes: [ReadWriteOncePod], volumeMode: Block, resources: {requests: {storage: 64Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: bare}
spec:
  restartPolicy: Never
  volumes: [{name: v, persistentVolumeClaim: {claimName: raw}}]
  containers:
  - name: c
    image: IMAGE
    command: [sh, -c, "head -c 5 /dev/disk; echo; printf bytes | dd of=/dev/disk conv=notrunc,fsync 2>/dev/null; SIZE"]
    volumeDevices: [{name: v, devicePath: /dev/disk}]
`

// TestBareDisk: a claim for a block device gives a disk of its size, which keeps the data that pods write to it.
func TestBareDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	document := strings.NewReplacer("IMAGE", image, "SIZE", "cat /dev/disk | wc -c").Replace(bare)
	w.must(t, document, "run", "--rm", "-q", "-")
	if got := w.must(t, document, "run", "--rm", "-q", "-"); got != "bytes\n67108864\n" {
		t.Errorf("the next pod reads %q", got)
	}
	c := w.run(t, "", "run", "--rm", "-q", "-v", "raw:/v", image, "ls", "/v")
	if c.ProcessState.ExitCode() == 0 || !strings.Contains(c.err.String(), "volume raw is a bare disk, which cannot be mounted") {
		t.Errorf("mounted: %v", c)
	}
	w.must(t, "", "volume", "rm", "raw")
	w.end(t)
}

// kilobytes returns the size in a line of df -k.
func kilobytes(t *testing.T, line string) (n int) {
	t.Helper()
	var device string
	if _, err := fmt.Sscan(line, &device, &n); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return n
}

// lastNumber returns the last number that the holder has printed.
func (w *world) lastNumber(t *testing.T) int {
	t.Helper()
	numbers := regexp.MustCompile(`(?m)^\d+$`).FindAllString(w.must(t, "", "logs", "holder"), -1)
	n, err := strconv.Atoi(numbers[len(numbers)-1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// copiedForGroup is a pod with a claim that gets a copy of the image's files, for the pod's group.
const copiedForGroup = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: ours}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 100Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: copied, annotations: {io.bulkhead.copy/v: image}}
spec:
  restartPolicy: Never
  securityContext: {runAsUser: 1000, runAsGroup: 1000, fsGroup: 2000}
  volumes: [{name: v, persistentVolumeClaim: {claimName: ours}}]
  containers:
  - {name: c, image: localhost/busybox:test, command: [sh, -c, "echo own >/bin/own && stat -c %g /bin/sh && cat /bin/own"],
    volumeMounts: [{name: v, mountPath: /bin}]}
`

// TestCopied: an empty volume gets a copy of the image's files at its mount point, once, unless the command
// disables it. A claim's volume gets it only if its pod asks for it.
func TestCopied(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const count = "ls /bin | grep -v lost+found | wc -l; ls -ld /bin | cut -c1-10"
	want := w.must(t, "", "run", "--rm", "-q", image, "sh", "-c", count)
	// The programs come from the volume.
	out := w.must(t, "", "run", "--rm", "-q", "-v", "programs:/bin", image, "sh", "-c", count+"; echo own >/bin/own; rm /bin/true")
	if out != want {
		t.Errorf("a new volume: %q, want %q", out, want)
	}
	out = w.must(t, "", "run", "--rm", "-q", "-v", "programs:/v", image, "sh", "-c", "cat /v/own; ls /v/true 2>&1; ls -a /v | grep copi; true")
	if out != "own\nls: /v/true: No such file or directory\n" {
		t.Errorf("the next pod: %q", out)
	}
	out = w.must(t, "", "run", "--rm", "-q", "-v", "programs:/bin", image, "sh", "-c", "cat /bin/own; ls /bin/true 2>/dev/null || echo gone")
	if out != "own\ngone\n" {
		t.Errorf("mounted again: %q", out)
	}
	out = w.must(t, "", "run", "--rm", "-q", "--mount", "type=volume,src=empty,dst=/etc,volume-nocopy", image,
		"sh", "-c", "ls /etc/passwd 2>/dev/null; true")
	if out != "" {
		t.Errorf("a volume that stays empty: %q", out)
	}
	if out = w.must(t, copiedForGroup, "run", "--rm", "-q", "-"); out != "2000\nown\n" {
		t.Errorf("a volume of a group: %q", out)
	}
}
