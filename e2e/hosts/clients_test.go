package hosts

import (
	"strings"
	"testing"
)

// client is a client of bulkhead-oci on a host with systemd, as Debian configures it.
type client struct {
	program string
	run     string // its command that runs a container in a VM
	scope   string // its scope of systemd for the container $id
	slice   string
}

// testClients: podman and docker run containers in VMs. Systemd has a scope for each, and its own service for the engine.
func (h *host) testClients(t *testing.T) {
	t.Run("podman", h.testPodman)
	t.Run("docker", h.testDocker)
}

func (h *host) testPodman(t *testing.T) {
	h.do(t, "root", `mkdir -p /etc/containers/containers.conf.d
cp /mnt/containers.conf /etc/containers/containers.conf.d/bulkhead.conf
podman tag $(podman load --quiet --input /mnt/busybox.tar | sed 's/.*: //') localhost/busybox:demo`)
	c := client{"podman", "podman --runtime bulkhead-oci run", "libpod-$id.scope", "machine.slice"}
	h.testService(t, c)
	h.testContainer(t, c)
}

// testService: a service of systemd's is a container, as podman generates it. It ends although it has started the engine.
func (h *host) testService(t *testing.T, c client) {
	h.do(t, "root", c.run+" --rm --network none localhost/busybox:demo true") // makes the template, in some minutes on this host
	h.do(t, "root", "pkill -u root -x bulkhead-engine || true; while pgrep -u root -x bulkhead-engine; do sleep 0.1; done")
	h.do(t, "root", `systemd-run --quiet --unit demo -p Type=notify -p NotifyAccess=all -p "ExecStop=podman stop --time 1 demo" \
  `+c.run+` --rm --detach --name demo --cgroups=no-conmon --sdnotify=conmon --network none localhost/busybox:demo sleep 100000`)
	if out := h.do(t, "root", "systemctl is-active demo && podman exec demo echo in"); out != "active\nin" {
		t.Errorf("the service is %q", out)
	}
	out := h.do(t, "root", "systemctl stop demo; pgrep -x conmon || echo ended; pgrep -u root -x bulkhead-engine >/dev/null && echo on")
	if out != "ended\non" {
		t.Errorf("conmon and the engine after the service: %q", out)
	}
}

func (h *host) testDocker(t *testing.T) {
	h.do(t, "root", `mkdir -p /etc/docker && cp /mnt/daemon.json /etc/docker/ && systemctl start docker
podman save --quiet --format docker-archive localhost/busybox:demo | docker load --quiet`)
	h.testContainer(t, client{"docker", "docker run --runtime bulkhead", "docker-$id.scope", "system.slice"})
	h.do(t, "root", "systemctl stop docker docker.socket containerd")
}

// testContainer: a container serves a port, its VM is in its scope, and nothing is left of it.
func (h *host) testContainer(t *testing.T, c client) {
	h.do(t, "root", c.run+` --detach --name web --publish 8099:80 --memory 256m localhost/busybox:demo \
  sh -c 'mkdir /www; echo served >/www/index.html; exec httpd -f -p 80 -h /www'`)
	h.do(t, "root", "until busybox wget -q -O - http://127.0.0.1:8099/ | grep -x served; do sleep 0.1; done")
	id := h.do(t, "root", c.program+" inspect --format '{{.Id}}' web")
	scope := strings.Replace(c.scope, "$id", id, 1)
	groups := "$(ls -d /sys/fs/cgroup/" + c.slice + " /sys/fs/cgroup/*/" + c.slice + " 2>/dev/null)"
	out := h.do(t, "root", "systemctl is-active "+scope+"; ps -o args= -p $(cat $(find "+groups+
		" -path '*/"+scope+"/*' -name cgroup.procs) | sort -u)")
	for _, want := range []string{"active", "qemu-system", "bulkhead-shim", "bulkhead-share", "bulkhead-surrogate"} {
		if !strings.Contains(out, want) {
			t.Errorf("the scope %s lacks %s: %s", scope, want, out)
		}
	}
	kernels := strings.Fields(h.do(t, "root", c.program+" exec web uname -r; uname -r"))
	if len(kernels) != 2 || kernels[0] == kernels[1] {
		t.Errorf("the kernels of the container and of the host: %q", kernels)
	}
	out = h.do(t, "root", c.program+" rm --force web >/dev/null 2>&1; "+
		"systemctl list-units --all --no-legend "+strings.Replace(c.scope, "$id", "*", 1)+"; find "+groups+
		" -path '*"+id+"*'; pgrep -a conmon || true")
	if out != "" {
		t.Errorf("left of the container: %s", out)
	}
}
