package agent

import (
	"errors"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// TestSeams checks that the guest's names equal the host's; the agent does not import the host's packages.
func TestSeams(t *testing.T) {
	t.Parallel()
	if agentv1.Port != hypervisor.ChannelPort || agentv1.SharePort != hypervisor.SharePort {
		t.Errorf("the ports are %q, %q here and %q, %q there", agentv1.Port, agentv1.SharePort, hypervisor.ChannelPort, hypervisor.SharePort)
	}
}

func TestExitOf(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status unix.WaitStatus
		oom    bool
		want   agentv1.Exit
	}{
		{0, false, agentv1.Exit{}},
		{3 << 8, false, agentv1.Exit{Code: 3}},
		{9, false, agentv1.Exit{Code: 137, Signal: 9}},
		{9, true, agentv1.Exit{Code: 137, Signal: 9, OOMKilled: true}},
		{0, true, agentv1.Exit{}}, // a child was killed, but the process succeeded
		{0x80 | 11, false, agentv1.Exit{Code: 139, Signal: 11}},
	} {
		got := exitOf(tc.status, tc.oom)
		got.At = time.Time{}
		if got != tc.want {
			t.Errorf("%x: %+v, want %+v", tc.status, got, tc.want)
		}
	}
}

func TestRoots(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		root containerv1.RootRecord
		want error
	}{
		{name: "none", want: errdefs.ErrInvalidArgument},
		{name: "two", root: containerv1.RootRecord{Image: "i", Share: "s"}, want: errdefs.ErrInvalidArgument},
		{name: "an invalid shared directory", root: containerv1.RecordOf(containerv1.Share{Name: "../s"}), want: errdefs.ErrInvalidArgument},
		{name: "a block device that is not mounted", root: containerv1.RecordOf(containerv1.Block{Name: "b"}), want: errdefs.ErrNotFound},
		{name: "an image that is not mounted", root: containerv1.RecordOf(containerv1.Image{ID: "i"}), want: errdefs.ErrNotFound},
	} {
		if at, _, err := (&Agent{}).lower(t.Context(), &container{}, agentv1.Create{RootRecord: tt.root}); !errors.Is(err, tt.want) {
			t.Errorf("%s: %q, %v", tt.name, at, err)
		}
	}
}
