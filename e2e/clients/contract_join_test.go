package clients

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
)

var joinCases = []contractCase{
	{"network by path", networkByPath},
	{"network of a container", joinNetwork},
	{"processes of a container", joinPIDs},
	{"pod", pod},
}

// netNamespace creates a configured network namespace as CNI and netavark do: mounted, with an interface eth0 that has
// the address 10.9.N.2/24. Its peer in the host has the address 10.9.N.1.
func netNamespace(t *testing.T, n int) (path string) {
	t.Helper()
	name := fmt.Sprintf("contract%d-%d", n, os.Getpid())
	path = filepath.Join("/run/netns", name)
	testnet.Run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { testnet.Run(t, "ip", "netns", "del", name) })
	peer := fmt.Sprintf("peer%d", n)
	for _, step := range []string{
		fmt.Sprintf("ip link add %s type veth peer name eth0 netns %s", peer, name),
		fmt.Sprintf("ip addr add 10.9.%d.1/24 dev %s", n, peer),
		fmt.Sprintf("ip link set %s up", peer),
		fmt.Sprintf("nsenter --net=%s ip addr add 10.9.%d.2/24 dev eth0", path, n),
		fmt.Sprintf("nsenter --net=%s ip link set eth0 up", path),
		fmt.Sprintf("nsenter --net=%s ip link set lo up", path),
		fmt.Sprintf("nsenter --net=%s ip route add default via 10.9.%d.1", path, n),
	} {
		testnet.Run(t, strings.Fields(step)...)
	}
	return path
}

// in sets the path of a namespace.
func in(spec *specs.Spec, kind specs.LinuxNamespaceType, path string) *specs.Spec {
	for i := range spec.Linux.Namespaces {
		if ns := &spec.Linux.Namespaces[i]; ns.Type == kind {
			ns.Path = path
		}
	}
	return spec
}

// of returns the path of a container's namespace.
func (k created) of(kind string) string { return fmt.Sprintf("/proc/%d/ns/%s", k.pid, kind) }

// networkByPath: the container has the interface, addresses and routes of a namespace that the client has configured.
func networkByPath(ctx context.Context, t *testing.T, c *contract) {
	n := 1
	if c.vm {
		n = 2
	}
	path := netNamespace(t, n)
	text := "ip -o -4 addr show dev eth0; ip route; ping -c 1 -W 5 10.9.%d.1 >/dev/null && echo answered; echo hello | nc -l -p 80"
	spec := in(script(fmt.Sprintf(text, n)), specs.NetworkNamespace, path)
	k := c.start(ctx, t, "c", spec)
	k.stdout.await(ctx, t, "answered\n")
	got := k.stdout.text()
	for _, want := range []string{fmt.Sprintf("10.9.%d.2/24", n), fmt.Sprintf("default via 10.9.%d.1 dev eth0", n)} {
		if !strings.Contains(got, want) {
			t.Errorf("the container's network: %q, want %q", got, want)
		}
	}
	until(ctx, t, "a connection from the host", func() bool { return connect(fmt.Sprintf("10.9.%d.2:80", n)) == "hello\n" })
	k.expectExit(ctx, t, 0)
	c.do(ctx, t, "delete", "c")
	// The client's interface is as it was, and can be used again.
	testnet.Run(t, "nsenter", "--net="+path, "sh", "-c",
		"ip -o addr show dev eth0 | grep -q 10.9. && ! tc qdisc show dev eth0 | grep -q ingress")
	k = c.start(ctx, t, "again", in(newSpec("ping", "-c", "1", "-W", "5", fmt.Sprintf("10.9.%d.1", n)), specs.NetworkNamespace, path))
	k.expectExit(ctx, t, 0)
}

// joinNetwork: --network container:X makes two containers share interfaces and the loopback.
func joinNetwork(ctx context.Context, t *testing.T, c *contract) {
	one := c.start(ctx, t, "one", script("hostname >/tmp/index.html; httpd -p 127.0.0.1:80 -h /tmp && echo started; sleep 1000"))
	one.stdout.await(ctx, t, "started")
	two := c.start(ctx, t, "two", in(newSpec("wget", "-q", "-O", "-", "http://127.0.0.1/"), specs.NetworkNamespace, one.of("net")))
	two.expectExit(ctx, t, 0)
	if got := two.stdout.all(ctx, t); got != "contract\n" {
		t.Errorf("the other container's page: %q", got)
	}
	if got := c.exec(ctx, t, "one", "ps"); strings.Contains(got, "wget") {
		t.Errorf("processes of a container that shares the network alone: %q", got)
	}
	c.do(ctx, t, "delete", "two")
	if got := c.exec(ctx, t, "one", "wget -q -O - http://127.0.0.1/"); got != "contract\n" {
		t.Errorf("after the other's end: %q", got)
	}
}

// joinPIDs: --pid container:X shows the other's processes, and kill reaches them.
func joinPIDs(ctx context.Context, t *testing.T, c *contract) {
	// It must not end: the kernel would kill the other container's process, too.
	one := c.start(ctx, t, "one", script("trap 'echo got' USR1; echo started; while :; do sleep 0.01; done"))
	one.stdout.await(ctx, t, "started")
	spec := in(script("ps; kill -USR1 1"), specs.PIDNamespace, one.of("pid"))
	two := c.start(ctx, t, "two", in(spec, specs.NetworkNamespace, one.of("net")))
	two.expectExit(ctx, t, 0)
	if got := two.stdout.all(ctx, t); !strings.Contains(got, "trap") {
		t.Errorf("processes seen by the other container: %q", got)
	}
	one.stdout.await(ctx, t, "got")
}

// pod: podman's infra container has no annotation, and the others name its namespaces. They share network, ipc and host
// name, and not the processes. A pod outlives its members.
func pod(ctx context.Context, t *testing.T, c *contract) {
	infra := c.start(ctx, t, "infra", newSpec("sleep", "1000"))
	member := func(id, text string) created {
		spec := script(text)
		spec.Hostname = ""
		in(spec, specs.NetworkNamespace, infra.of("net"))
		in(spec, specs.IPCNamespace, infra.of("ipc"))
		in(spec, specs.UTSNamespace, infra.of("uts"))
		spec.Annotations = map[string]string{"io.kubernetes.cri-o.ContainerType": "container", "io.kubernetes.cri-o.SandboxID": "infra"}
		return c.start(ctx, t, id, spec)
	}
	server := member("server", "hostname >/tmp/index.html; httpd -p 80 -h /tmp && echo started; sleep 1000")
	server.stdout.await(ctx, t, "started")
	client := member("client", "wget -q -O - http://127.0.0.1/; hostname; ps | grep -c 'http[d]'; exit 4")
	client.expectExit(ctx, t, 4)
	if got := client.stdout.all(ctx, t); got != "contract\ncontract\n0\n" {
		t.Errorf("a member sees %q", got)
	}
	c.do(ctx, t, "delete", "client")
	c.do(ctx, t, "kill", "server", "KILL")
	server.expectSignal(ctx, t, unix.SIGKILL)
	c.do(ctx, t, "delete", "server")
	again := member("server", "exit 6")
	again.expectExit(ctx, t, 6)
	c.do(ctx, t, "delete", "--force", "infra")
	infra.expectSignal(ctx, t, unix.SIGKILL)
}
