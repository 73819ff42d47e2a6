package convert

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/oci"
)

func TestNamespaces(t *testing.T) {
	const host = `"hostname":"h","domainname":"d","linux":{"sysctl":{"net.core.somaxconn":"1"},"namespaces":[]}`
	const own = `"hostname":"h","domainname":"d","linux":{"sysctl":{"net.core.somaxconn":"1"}}`
	const paths = `"hostname":"h","linux":{"namespaces":[{"type":"network","path":"/n"},{"type":"pid","path":"/p"},{"type":"ipc","path":"/i"},
		{"type":"uts","path":"/u"},{"type":"cgroup","path":"/c"}]}`
	const member = `"annotations":{"io.kubernetes.cri-o.SandboxID":"pod"},`
	for _, tc := range []struct {
		name, fields string
		join         *Join
		kind         oci.Kind
		sandbox      string
		guest        string // namespaces and names
		vm           string
		notes        int
	}{
		{name: "first", fields: own, kind: oci.Single, sandbox: "c1", guest: "mount cgroup pid h d", vm: "h d 1"},
		{
			name: "first with the host's", fields: host, kind: oci.Single, sandbox: "c1",
			guest: "mount cgroup pid=bulkhead.pod h d", vm: "h d 1", notes: 1,
		},
		{name: "member", fields: member + own, kind: oci.Container, sandbox: "pod", guest: "mount cgroup pid ipc uts h d", vm: "  0"},
		{
			name: "member with the host's", fields: member + host, kind: oci.Container, sandbox: "pod",
			guest: "mount cgroup pid=bulkhead.pod  ", vm: "  0", notes: 3,
		},
		{
			name: "joined by its namespaces", fields: paths, kind: oci.Container, sandbox: "a",
			join:  &Join{SandboxID: "a", PID: agentv1.Namespace("b")},
			guest: "mount cgroup pid=bulkhead.container:b  ", vm: "  0", notes: 1,
		},
		{
			name: "joined, all of one container", fields: member + paths, kind: oci.Container, sandbox: "a", vm: "  0", notes: 1,
			join:  &Join{SandboxID: "a", PID: agentv1.Namespace("b"), IPC: agentv1.Namespace("b"), UTS: agentv1.Namespace("")},
			guest: "mount cgroup pid=bulkhead.container:b ipc=bulkhead.container:b uts=bulkhead.pod  ",
		},
	} {
		o := defaults()
		o.Join = func(n Namespaces) (*Join, error) {
			if n.Network != (Namespace{ByPath, "/n"}) || n.PID.Path != "/p" || n.IPC.Path != "/i" || n.UTS.Path != "/u" {
				t.Errorf("%s: asked for %+v", tc.name, n)
			}
			return tc.join, nil
		}
		p, err := Decode(with(t, tc.fields), o)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		var guest []string
		for _, ns := range p.Guest.Linux.Namespaces {
			text := string(ns.Type)
			if ns.Path != "" {
				text += "=" + ns.Path
			}
			guest = append(guest, text)
		}
		guest = append(guest, p.Guest.Hostname, p.Guest.Domainname)
		vm := fmt.Sprintf("%s %s %d", p.Hostname, p.Domainname, len(p.Sysctls))
		same := p.Kind == tc.kind && p.SandboxID == tc.sandbox && len(p.Ignored) == tc.notes
		if got := strings.Join(guest, " "); got != tc.guest || vm != tc.vm || !same {
			t.Errorf("%s: guest %q, VM %q, %s of %s, %v", tc.name, got, vm, p.Kind, p.SandboxID, p.Ignored)
		}
		if (len(p.Guest.Linux.Sysctl) > 0) == (len(p.Sysctls) > 0) && tc.fields != paths && !strings.HasSuffix(tc.fields, paths) {
			t.Errorf("%s: sysctls %v and %v", tc.name, p.Guest.Linux.Sysctl, p.Sysctls)
		}
	}
}

func TestJoinRefuses(t *testing.T) {
	const net = `"linux":{"namespaces":[{"type":"pid"},{"type":"network","path":"/n"}]}`
	failed := errors.New("no such process")
	o := defaults()
	o.Join = func(Namespaces) (*Join, error) { return nil, failed }
	if _, err := Decode(with(t, net), o); !errors.Is(err, failed) {
		t.Error(err)
	}
	o.Join = func(Namespaces) (*Join, error) { return &Join{SandboxID: "a"}, nil }
	if _, err := Decode(with(t, `"annotations":{"io.kubernetes.cri.container-type":"sandbox"},`+net), o); !errors.Is(err, oci.ErrInvalid) {
		t.Error(err)
	}
	o.Join = nil
	p, err := Decode(with(t, net), o)
	if err != nil || p.Kind != oci.Single || p.Namespaces.Network.Path != "/n" {
		t.Errorf("%+v, %v", p, err)
	}
}

// TestDomainnameBySysctl: docker writes the name as a sysctl.
func TestDomainnameBySysctl(t *testing.T) {
	p := plan(t, `"linux":{"sysctl":{"kernel.domainname":"d"}}`)
	if p.Domainname != "d" || p.Guest.Domainname != "d" || len(p.Sysctls) > 0 || len(p.Guest.Linux.Sysctl) > 0 {
		t.Errorf("%+v", p)
	}
}
