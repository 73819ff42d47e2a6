package vms

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/door/oci"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/shim"
)

// TestClass: errors get the classes that clients match, and keep their texts.
func TestClass(t *testing.T) {
	for err, want := range map[error]codes.Code{
		oci.ErrNotRunning: codes.NotFound,
		fmt.Errorf("container c: %w", oci.ErrNotExist): codes.NotFound,
		oci.ErrExists:                           codes.AlreadyExists,
		shim.ErrNotRunning:                      codes.Unavailable,
		fmt.Errorf("call: %w", ttrpc.ErrClosed): codes.Unavailable,
		fmt.Errorf("call: %w", status.Error(codes.InvalidArgument, "bad")): codes.InvalidArgument,
		status.Error(codes.Unimplemented, "no"):                            codes.Unimplemented,
		grpccode.Error(status.New(codes.FailedPrecondition, "paused")):     codes.FailedPrecondition,
		context.Canceled: codes.Canceled,
		fmt.Errorf("wait: %w", context.DeadlineExceeded):                        codes.DeadlineExceeded,
		errors.New("unknown"):                                                   codes.Unknown,
		fmt.Errorf("open: %w", os.ErrNotExist):                                  codes.Unknown, // a missing file is not a missing container
		fmt.Errorf("call: %w", grpccode.Error(status.New(codes.NotFound, "x"))): codes.Unknown,
		errclass.New(errdefs.ErrAlreadyExists, "a pod of this name"):            codes.Unknown,
	} {
		if got := class(err); grpccode.Of(got) != want || !errors.Is(got, err) || got.Error() != err.Error() {
			t.Errorf("class(%v): got %v with the code %s, want %s", err, got, grpccode.Of(got), want)
		}
	}
	if class(nil) != nil {
		t.Error("class(nil) is an error")
	}
}

func TestMetrics(t *testing.T) {
	m := metrics(&agentv1.Stats{CPUUsec: 7, MemoryBytes: 100, WorkingSet: 60, RSS: 40, Pids: 3, PageFaults: 9})
	if m.CPU.UsageUsec != 7 || m.Memory.Usage != 100 || m.Memory.InactiveFile != 40 || m.Memory.Anon != 40 ||
		m.Pids.Current != 3 || m.Memory.Pgfault != 9 {
		t.Errorf("got %v", m)
	}
	if m := metrics(&agentv1.Stats{MemoryBytes: 1, WorkingSet: 2}); m.Memory.InactiveFile != 0 {
		t.Errorf("a working set above the usage: got %v", m)
	}
	for reported, want := range map[uint64]uint64{0: math.MaxUint64, 5: 5} { // clients subtract the usage from it
		if m := metrics(&agentv1.Stats{MemoryLimit: reported}); m.Memory.UsageLimit != want {
			t.Errorf("the limit %d: got %d, want %d", reported, m.Memory.UsageLimit, want)
		}
	}
}
