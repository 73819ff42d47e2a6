package hosts

import (
	"strings"
	"testing"
	"time"
)

// sandbox returns a field of `bulkhead inspect --sandbox`.
func (s *session) sandbox(t *testing.T, pod, field string) string {
	t.Helper()
	return s.do(t, "bulkhead inspect --sandbox "+pod+" -o jsonpath='{"+field+"}'")
}

// group returns the directory of the VM's cgroup on the host.
func (s *session) group(t *testing.T) string {
	t.Helper()
	return s.sandbox(t, "web", ".cgroup.dirs[0]")
}

// testLimits: the pod's cgroup on the host has the pod's limits, and an update changes them. Beyond its limit a pod has a
// quarter of a CPU for QEMU.
func (s *session) testLimits(t *testing.T) {
	at := s.group(t)
	if s.cgroup1 && s.user != "root" { // check says that there are no limits on the host
		if at != "" {
			t.Errorf("a user's VM is in the cgroup %s", at)
		}
		return
	}
	if !strings.Contains(at, "bulkhead") {
		t.Fatalf("the VM is in the cgroup %s", at)
	}
	memory, cpu, pids := s.limits(t)
	if memory == "max" || cpu != "75000 100000" || pids == "max" {
		t.Errorf("limits of memory %s, CPU %s, processes %s", memory, cpu, pids)
	}
	s.do(t, "bulkhead update web --memory 384m --cpus 1.5")
	if m, c, _ := s.limits(t); m == memory || m == "max" || c != "175000 100000" {
		t.Errorf("after an update: limits of memory %s (%s before), CPU %s", m, memory, c)
	}
}

// limits returns the limits in the VM's cgroups on the host. Version 1 of cgroups has a directory for each controller.
func (s *session) limits(t *testing.T) (memory, cpu, pids string) {
	t.Helper()
	out := s.host.do(t, "root", "dirs='"+s.sandbox(t, "web", ".cgroup.dirs[*]")+"'\n"+
		`values() { for d in $dirs; do for f; do [ ! -e $d/$f ] || cat $d/$f; done; done | xargs; }
		values memory.max memory.limit_in_bytes
		values cpu.max cpu.cfs_quota_us cpu.cfs_period_us
		values pids.max`)
	lines := strings.Split(out, "\n")
	if len(lines) != 3 {
		t.Fatalf("the limits are %q", out)
	}
	return lines[0], lines[1], lines[2]
}

// testEngineKilled: a pod survives its engine, and the next engine serves the pod from the same unit of systemd.
func (s *session) testEngineKilled(t *testing.T) {
	const engine = "$(pgrep -x -u $(id -u) bulkhead-engine)"
	const unit = `sed -n 's|^0::.*/\([^/]*\.scope\).*|\1|p' /proc/` + engine + "/cgroup"
	at := s.group(t)
	in := s.do(t, unit)
	s.do(t, "kill -9 "+engine)
	s.says(t, "on", "bulkhead exec web -- echo on")
	if now := s.group(t); now != at {
		t.Errorf("its VM was in %s and is in %s", at, now)
	}
	if now := s.do(t, unit); now != in || !strings.HasPrefix(in, "bulkhead") {
		t.Errorf("the engine was in the unit %q and is in %q", in, now)
	}
}

// testVMKilled: a pod fails when its VM is killed, and its status says why.
func (s *session) testVMKilled(t *testing.T) {
	s.do(t, "bulkhead run -d --name victim localhost/busybox:demo sleep 1000")
	s.do(t, "kill -9 "+s.sandbox(t, "victim", ".vmPID")+"; bulkhead wait victim || true")
	if status := s.do(t, "bulkhead ps -f name=victim --format '{{.Status}}'"); !strings.Contains(status, "VM") {
		t.Errorf("its status is %s", status)
	}
	s.do(t, "bulkhead rm victim")
}

// testVolumes: a pod reads and writes a directory of the host and a volume.
func (s *session) testVolumes(t *testing.T) {
	s.says(t, "host\npod\npod", `d=$(mktemp -d); chmod 777 $d; echo host >$d/host
		bulkhead volume create data >/dev/null
		bulkhead run --rm -v $d:/d -v data:/v localhost/busybox:demo sh -c "cat /d/host; echo pod >/d/pod; echo pod >/v/pod"
		cat $d/pod; rm -r $d
		bulkhead run --rm -v data:/v localhost/busybox:demo cat /v/pod; bulkhead volume rm data >/dev/null`)
}

// testLogout: pods of a lingering user survive the logout. Pods of another user end with the session.
func (s *session) testLogout(t *testing.T) {
	at := s.group(t)
	s.logout(s.user)
	if s.user == "bob" {
		for wait := deadline(t); ; {
			if out, err := s.try(wait, "root", "! pgrep -u bob qemu"); err == nil {
				break
			} else if wait.Err() != nil {
				t.Fatalf("bob's VMs go on: %v: %s", err, out)
			}
			time.Sleep(time.Second) // the end of a session sends no event
		}
		return
	}
	s.says(t, "on", "bulkhead exec web -- echo on")
	if now := s.group(t); now != at {
		t.Errorf("its VM was in %s and is in %s", at, now)
	}
}

// testEnd: after the removal of all pods the host has no VM and no cgroup of theirs.
func (s *session) testEnd(t *testing.T) {
	s.do(t, "bulkhead rm -f web")
	s.says(t, "", "bulkhead ps -q")
	if left := s.do(t, "pgrep -a '^qemu' || true"); left != "" {
		t.Errorf("VMs are left: %s", left)
	}
	if left := s.host.do(t, "root", `find /sys/fs/cgroup -type d -name "*bulkhead*web*"`); left != "" {
		t.Errorf("cgroups are left: %s", left)
	}
}
