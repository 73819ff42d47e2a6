package admission

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestHostPorts checks that two pods cannot have the same port, protocol and address. The address of all interfaces
// conflicts with every address.
func TestHostPorts(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		first, second string
		clash         bool
	}{
		{`containers: [{name: c, ports: [{containerPort: 80, hostPort: 80}]}]`,
			`containers: [{name: c, ports: [{containerPort: 81, hostPort: 80, protocol: TCP}]}]`, true},
		{`containers: [{name: c, ports: [{containerPort: 80, hostPort: 80}]}]`,
			`containers: [{name: c, ports: [{containerPort: 80, hostPort: 81}]}]`, false},
		{`containers: [{name: c, ports: [{containerPort: 80, hostPort: 80}]}]`, `containers: [{name: c, ports: [{containerPort: 80}]}]`, false},
		{`containers: [{name: c, ports: [{containerPort: 80, hostPort: 80}]}]`,
			`containers: [{name: c, ports: [{containerPort: 80, hostPort: 80, protocol: UDP}]}]`, false},
		{`containers: [{name: c, ports: [{containerPort: 80, hostPort: 80, hostIP: 127.0.0.1}]}]`,
			`containers: [{name: c, ports: [{containerPort: 80, hostPort: 80, hostIP: 192.0.2.1}]}]`, false},
		{`containers: [{name: c, ports: [{containerPort: 80, hostPort: 80, hostIP: 127.0.0.1}]}]`,
			`containers: [{name: c, ports: [{containerPort: 80, hostPort: 80, hostIP: 127.0.0.1}]}]`, true},
		{`containers: [{name: c, ports: [{containerPort: 80, hostPort: 80, hostIP: 127.0.0.1}]}]`,
			`containers: [{name: c, ports: [{containerPort: 80, hostPort: 80, hostIP: 0.0.0.0}]}]`, true},
		{`containers: [{name: c, ports: [{containerPort: 80, hostPort: 80, hostIP: "::1"}]}]`,
			`containers: [{name: c, ports: [{containerPort: 80, hostPort: 80, hostIP: "0:0::1"}]}]`, true},
		{`hostNetwork: true, containers: [{name: c, ports: [{containerPort: 80}]}]`,
			`containers: [{name: c, ports: [{containerPort: 8080, hostPort: 80}]}]`, true},
		{`initContainers: [{name: i, restartPolicy: Always, ports: [{containerPort: 80, hostPort: 80}]}], containers: [{name: c}]`,
			`containers: [{name: c, ports: [{containerPort: 80, hostPort: 80}]}]`, true},
		{`initContainers: [{name: i, ports: [{containerPort: 80, hostPort: 80}]}], containers: [{name: c}]`,
			`containers: [{name: c, ports: [{containerPort: 80, hostPort: 80}]}]`, false},
	} {
		for _, registered := range []func() *corev1.Node{node, func() *corev1.Node { return nil }} {
			a := New(registered, nil, nil)
			one, two := pod(t, "one", tt.first), pod(t, "two", tt.second)
			one.UID, two.UID = "1", "2"
			for _, again := range []*corev1.Pod{one, one} { // a pod does not conflict with itself
				if no := a.Admit(again); no != nil {
					t.Fatalf("%s: %+v", tt.first, no)
				}
			}
			if no := a.Admit(two); (no != nil) != tt.clash || tt.clash && no.Reason != "NodePorts" {
				t.Errorf("%s with %s: %+v", tt.second, tt.first, no)
			}
			a.Release("1")
			if no := a.Admit(two); no != nil {
				t.Errorf("%s after %s: %+v", tt.second, tt.first, no)
			}
		}
	}
}

// TestHostPortsTaken checks that running pods keep their ports, and that a rejected pod reserves none.
func TestHostPortsTaken(t *testing.T) {
	t.Parallel()
	a := New(node, nil, nil)
	const spec = `containers: [{name: c, resources: {requests: {cpu: "1"}}, ports: [{containerPort: 80, hostPort: 80}]}]`
	one, two := pod(t, "one", spec), pod(t, "two", spec)
	one.UID, two.UID = "1", "2"
	a.AddRunning(one)
	if no := a.Admit(two); no == nil || no.Reason != "NodePorts" {
		t.Errorf("%+v", no)
	}
	for _, uid := range []types.UID{"3", "4"} {
		other := pod(t, "other", `containers: [{name: c, resources: {requests: {cpu: 500m}}}]`)
		other.UID = uid
		if no := a.Admit(other); no != nil {
			t.Errorf("the ports of a rejected pod are not free: %+v", no)
		}
	}
}

// TestOnFreed checks that the follower is called when resources are released, and only then.
func TestOnFreed(t *testing.T) {
	t.Parallel()
	a, calls := New(node, nil, nil), 0
	a.Release("none")
	a.OnFreed(func() { calls++ })
	p := pod(t, "p", `containers: [{name: c, resources: {requests: {cpu: "1"}}}]`)
	a.Hold(p)
	a.Release(p.UID)
	if calls != 0 {
		t.Errorf("%d calls although nothing was released", calls)
	}
	a.AddRunning(p)
	a.Hold(p)
	a.Release(p.UID)
	a.Release(p.UID)
	if calls != 2 {
		t.Errorf("%d calls", calls)
	}
}
