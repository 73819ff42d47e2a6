package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/door/oci/surrogate"
	"github.com/bulkhead-project/bulkhead/oci"
)

// A container with the kind oci.Sandbox is a pod's VM. Clients of the CRI describe it by a pause container, which only
// keeps namespaces open. A VM does not need that, so the guest runs no such container. The surrogate stands for the VM.

// errSandbox is returned for calls about the process of a pause container.
var errSandbox = errors.New("the container is a pod's VM, and runs no process")

// sandbox reports whether the container is a pod's VM.
func (c *creation) sandbox() bool { return c.plan.Kind == oci.Sandbox }

// record of a pod with the namespaces of its surrogate, for the containers that join it.
func (c *creation) podRecord() ([]byte, error) {
	if !c.sandbox() {
		return nil, nil // the container's own record has them
	}
	return json.Marshal(knownOf(c.record.Surrogate.PID))
}

// hold makes the surrogate stand for the VM: it ends with the VM, and the door's client ends it to end the VM.
func (c *creation) hold(ctx context.Context) error {
	s, err := c.record.shim(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	status, err := s.Extension.Status(ctx, &shimv1.StatusRequest{})
	if err != nil {
		return fmt.Errorf("find the VM's process: %w", plain(err))
	}
	fd, err := unix.PidfdOpen(int(status.GetVmPid()), 0)
	if err != nil {
		return fmt.Errorf("find the VM's process %d: %w", status.GetVmPid(), os.NewSyscallError("pidfd_open", err))
	}
	vm := os.NewFile(uintptr(fd), "vm")
	defer vm.Close()
	return c.helper.orderWith(ctx, surrogate.Hold, vm)
}

// sum sums the usage of a pod's containers.
func sum(pod agentv1.PodStats) (all agentv1.Stats) {
	all.MemoryLimit = uint64(max(pod.Memory.Total, 0))
	for _, one := range pod.Containers {
		all.CPUUsec += one.CPUUsec
		all.MemoryBytes += one.MemoryBytes
		all.WorkingSet += one.WorkingSet
		all.RSS += one.RSS
		all.PageFaults += one.PageFaults
		all.MajPageFaults += one.MajPageFaults
		all.Pids += one.Pids
		all.At = one.At
	}
	return all
}

// namespacesOf returns the namespaces that a pod's record names.
func namespacesOf(p *enginev1.Pod) known {
	var k known
	if json.Unmarshal(p.GetRecord(), &k) != nil {
		return nil
	}
	return k
}
