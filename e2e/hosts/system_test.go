package hosts

import (
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// loads is the command with which a user loads the image.
const loads = "bulkhead image load --quiet oci-archive:/mnt/busybox.tar localhost/busybox:demo"

// cri makes the files that crictl reads, and a network for its pods.
const cri = `mkdir -p /etc/cni/net.d /var/log/pods/typed
at=unix:///run/bulkhead/cri.sock
printf 'runtime-endpoint: %s\nimage-endpoint: %s\ntimeout: 180\n' $at $at >/etc/crictl.yaml
# As a kubelet does. With version 1 of cgroups, systemd creates the slice's directory only for some controllers.
systemctl start kubepods-besteffort-pod1.slice
[ -e /sys/fs/cgroup/cgroup.controllers ] || for controller in memory cpu cpuacct pids; do
  mkdir -p /sys/fs/cgroup/$controller/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice
done
cat >/etc/cni/net.d/10-bridge.conflist <<'END'
{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.85.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]}}
]}
END
cat >/root/pod.json <<'END'
{"metadata": {"name": "typed", "namespace": "default", "uid": "1"}, "log_directory": "/var/log/pods/typed",
 "linux": {"cgroup_parent": "kubepods-besteffort-pod1.slice"}}
END
cat >/root/container.json <<'END'
{"metadata": {"name": "web"}, "image": {"image": "localhost/busybox:demo"}, "command": ["sleep", "1000"], "log_path": "web.log"}
END
`

// testUnits: the unit of cri serves crictl. Its pod lies in the slice that a kubelet with systemd's cgroup driver names, and
// outlives the unit's restart. The unit of node says why it does not start without a cluster.
func (h *host) testUnits(t *testing.T) {
	h.do(t, "root", cri)
	h.do(t, "root", "systemctl start bulkhead-cri && "+strings.Replace(loads, "load", "load --for cri", 1))
	const crictl = "crictl "
	if out := h.do(t, "root", crictl+"runtime-config"); !strings.Contains(out, "SYSTEMD") {
		t.Errorf("the cgroup driver: %s", out)
	}
	pod := h.do(t, "root", crictl+"runp /root/pod.json")
	id := h.do(t, "root", crictl+"create "+pod+" /root/container.json /root/pod.json")
	h.do(t, "root", crictl+"start "+id)
	const slice = "find $(ls -d /sys/fs/cgroup/kubepods.slice /sys/fs/cgroup/*/kubepods.slice 2>/dev/null) -name cgroup.procs " +
		"-path '*kubepods-besteffort-pod1.slice*' -exec cat {} +"
	if out := h.do(t, "root", slice); out == "" {
		t.Error("the slice of the pod has no process")
	}
	if out := h.do(t, "root", crictl+"exec "+id+" echo in"); out != "in" {
		t.Errorf("exec prints %q", out)
	}
	if out := h.do(t, "root", crictl+"inspectp "+pod); !strings.Contains(out, `"ip": "10.85.`) {
		t.Errorf("the pod has no address of its network: %s", out)
	}
	if out := h.do(t, "root", "systemctl restart bulkhead-cri && "+crictl+"exec "+id+" echo on"); out != "on" {
		t.Errorf("after a restart exec prints %q", out)
	}
	h.do(t, "root", crictl+"stopp "+pod+" && "+crictl+"rmp "+pod)
	if out := h.do(t, "root", slice+"; pgrep -a '^qemu' || true"); out != "" {
		t.Errorf("left are %s", out)
	}
	if out, err := h.try(deadline(t), "root", "systemctl start bulkhead-node"); err == nil {
		t.Errorf("the unit of a node without a cluster starts: %s", out)
	}
	if out := h.do(t, "root", "journalctl -u bulkhead-node -o cat | tail -n 20"); !strings.Contains(out, "kubeconfig") {
		t.Errorf("the unit of a node without a cluster says: %s", out)
	}
	h.do(t, "root", "systemctl stop bulkhead-cri bulkhead-node; systemctl reset-failed")
}

// testPackage: pods of root and of a user outlive the upgrade, the removal and the next installation of the package.
func (h *host) testPackage(t *testing.T) {
	users := []string{"root", "alice"}
	goOn := func(after string) {
		t.Helper()
		for _, user := range users {
			if out := h.do(t, user, "bulkhead exec stays -- echo on"); out != "on" {
				t.Errorf("after %s exec of %s prints %q", after, user, out)
			}
		}
	}
	for _, user := range users {
		h.do(t, user, loads+" && bulkhead run -d --name stays localhost/busybox:demo sleep 100000")
	}
	h.do(t, "root", "apt-get -qq install /mnt/later.deb")
	if out := h.do(t, "root", "dpkg-query -W bulkhead"); !strings.HasSuffix(out, ".later") {
		t.Errorf("after the upgrade there is %s", out)
	}
	goOn("the upgrade")
	h.do(t, "root", "pkill -x bulkhead-engine")
	goOn("the end of the old engines")
	out := h.do(t, "root", "apt-get -qq remove bulkhead 2>&1")
	for _, want := range []string{"these pods keep running", "a pod of root default/stays", "a pod of alice"} {
		if !strings.Contains(out, want) {
			t.Errorf("the removal does not say %q: %s", want, out)
		}
	}
	if out := h.do(t, "root", "pgrep -c '^qemu'; ls -d /usr/share/bulkhead 2>/dev/null || true"); out != "2" {
		t.Errorf("VMs and directories after the removal: %s", out)
	}
	h.do(t, "root", "apt-get -qq install /mnt/bulkhead.deb")
	goOn("another installation")
	for _, user := range users {
		h.do(t, user, "bulkhead rm -f stays")
	}
}

// testReboot: after a restart of the host, a pod that is always restarted runs again. Another one says how it ended.
func (h *host) testReboot(t *testing.T) {
	h.do(t, "root", "bulkhead run -d --restart always --name always localhost/busybox:demo sleep 100000")
	h.do(t, "root", "bulkhead run -d --name never localhost/busybox:demo sleep 100000")
	const id = "cat /proc/sys/kernel/random/boot_id"
	before := h.do(t, "root", id)
	_, _ = h.try(deadline(t), "root", "systemctl reboot") // it ends the session
	for ctx := testdeadline.Context(t, 5*time.Minute); ; {
		h.leave()
		h.await(ctx, t)
		if now, err := h.try(ctx, "root", id); err == nil && now != before {
			break
		}
	}
	h.holdKVM(t)
	h.do(t, "root", "until bulkhead ps --format '{{.Name}} {{.Status}}' | grep -qx 'always Running'; do sleep 1; done")
	if out := h.do(t, "root", "bulkhead exec always -- echo on; bulkhead wait never || true"); out != "on\n137" {
		t.Errorf("after the restart: %q", out)
	}
	h.do(t, "root", "bulkhead rm -f always never")
}
