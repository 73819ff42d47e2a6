package hosts

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// once is a pod that ends by itself. A guest that dies shows its console.
const once = "bulkhead --detail run --rm localhost/busybox:demo echo on"

// clear registers a script of root for the end of the test. It runs once bob has no process and no session.
func (h *host) clear(t *testing.T, script string) {
	t.Cleanup(func() {
		h.killBob(t)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testdeadline.For(time.Minute))
		defer cancel()
		if out, err := h.try(ctx, "root", script); err != nil {
			t.Errorf("%s: %v: %s", script, err, out)
		}
	})
}

// killBob kills all processes of bob, his session's included.
func (h *host) killBob(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testdeadline.For(time.Minute))
	defer cancel()
	if out, err := h.try(ctx, "root", "pkill -KILL -u bob; while pgrep -u bob >/dev/null; do sleep 0.2; done"); err != nil {
		t.Errorf("kill bob's processes: %v: %s", err, out)
	}
	h.logout("bob")
}

// testHome: a user's pods run where the home directory is on another file system, and where nothing may be executed in it, in
// /tmp and in /run. On a disk that is full the error names the reason, and nothing is left.
func (h *host) testHome(t *testing.T) {
	h.do(t, "root", "mount -t tmpfs -o size=3G,mode=0700,uid=bob,gid=bob,noexec,nodev,nosuid home /home/bob && "+
		"cp -a /root/.ssh /home/bob/ && chown -R bob:bob /home/bob")
	h.logout("bob")
	h.clear(t, "umount -l /run /tmp /dev/shm /home/bob")
	for _, dir := range []string{"/run", "/tmp", "/dev/shm"} {
		h.do(t, "root", "mount --bind "+dir+" "+dir+" && mount -o remount,bind,noexec,nodev "+dir)
	}
	if out := h.do(t, "bob", loads+" >/dev/null && "+once); out != "on" {
		t.Errorf("without execution the pod prints %q", out)
	}
	if out, err := h.try(deadline(t), "bob", "head -c 4G /dev/zero >~/full 2>/dev/null || true; "+once); err == nil ||
		!strings.Contains(out, "no space left") {
		t.Errorf("on a full disk: %v: %s", err, out)
	}
	if out := h.do(t, "bob", "rm ~/full; bulkhead ps -a -q; "+once); out != "on" {
		t.Errorf("once the disk has room the pod prints %q", out)
	}
}

// testIPv6: a pod runs in a network that has no IPv4, and a port of it is reached by IPv6.
func (h *host) testIPv6(t *testing.T) {
	h.clear(t, "ip netns del v6")
	h.do(t, "root", `ip netns add v6 && ip -n v6 link set lo up && ip -n v6 link add dev d0 type dummy && ip -n v6 link set dev d0 up &&
		ip -n v6 addr add fd00::2/64 dev d0 nodad && ip -n v6 route add default via fd00::1 dev d0`)
	out := h.do(t, "root", `ip netns exec v6 runuser -u bob -- sh -ec '
		cd; export XDG_RUNTIME_DIR=; bulkhead image load --quiet oci-archive:/mnt/busybox.tar localhost/busybox:demo >/dev/null
		bulkhead run -d --wait --name six -p "[::1]:8086:80" localhost/busybox:demo \
			sh -c "echo served >/index.html; httpd -f -p 80 -h /" >/dev/null
		busybox wget -q -O - "http://[::1]:8086/"; bulkhead rm -f six >/dev/null'`)
	// Before that, the command says that no traffic leaves the pod.
	if !strings.HasSuffix(out, "served") {
		t.Errorf("by IPv6 the pod prints %q", out)
	}
}

// testNoUserNamespaces: where the kernel gives ordinary users no namespaces, their pods run, or the error says what to do.
func (h *host) testNoUserNamespaces(t *testing.T) {
	h.do(t, "bob", loads)
	h.clear(t, "sysctl -q user.max_user_namespaces=10000")
	h.killBob(t)
	h.do(t, "root", "sysctl -q user.max_user_namespaces=0")
	out, err := h.try(deadline(t), "bob", once)
	t.Logf("without user namespaces: %v: %s", err, out)
	if err != nil && !strings.Contains(out, "user namespaces") {
		t.Errorf("without user namespaces: %v: %s", err, out)
	}
}
