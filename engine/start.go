package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/group"
	"github.com/bulkhead-project/bulkhead/engine/guestfiles"
	"github.com/bulkhead-project/bulkhead/engine/hostports"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/engine/unwind"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/printable"
	"github.com/bulkhead-project/bulkhead/internal/userns"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/layout"
	"github.com/bulkhead-project/bulkhead/shim/uids"
)

// consoleTail is how many bytes of the console an error carries.
const consoleTail = 4096

// attach prepares the pod's network.
func (b *building) attach(ctx context.Context) (err error) {
	b.undo.Push("network", func(context.Context) error { return b.closeNetwork() })
	who := b.plan.Identity
	r := network.Request{
		ID: b.record.ID, Name: who.Name, Namespace: who.Namespace, UID: who.UID,
		Ports: b.plan.Ports, DNS: b.plan.DNS, Bandwidth: b.plan.Bandwidth, Tap: b.plan.Tap,
	}
	b.attached, err = b.e.attach(ctx, b.plan.provider, r)
	return failure.Wrap(err, "network")
}

// start starts the shim and with it the VM. The VM comes up during the next steps.
func (b *building) start(ctx context.Context) (err error) {
	reason, why := b.whyNoFork()
	b.notForked = reason
	if !b.plan.Cold {
		b.record.ForkNote = why
	}
	b.conn, err = b.startShim(ctx, reason == "")
	b.cloned = time.Now()
	return failure.Wrap(err, "start the shim")
}

// address waits for the pod's addresses. The VM starts without them.
func (b *building) address(ctx context.Context) error {
	if b.attached.Complete == nil {
		return nil
	}
	return failure.Wrap(b.attached.Complete(ctx, &b.attached), "network")
}

// create sends the pod's configuration to the shim.
func (b *building) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	if err := b.sendScratch(ctx); err != nil {
		return err
	}
	for i, c := range b.attached.Cards {
		if err := b.conn.SendFile(ctx, layout.Card(i), c.Tap); err != nil {
			return failure.Wrap(err, "network card %d", i)
		}
	}
	raw, err := json.Marshal(b.config())
	if err != nil {
		return failure.Wrap(err, "encode the configuration")
	}
	_, err = b.conn.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
		SandboxID: b.record.ID, Options: &anypb.Any{TypeUrl: layout.ConfigType, Value: raw},
	})
	return failure.Wrap(err, "create the sandbox")
}

// sendScratch sends the scratch disk to the pod's shim. It creates the disk if the pod has none from a predecessor.
func (b *building) sendScratch(ctx context.Context) error {
	disk, err := b.e.disks.Make(ctx, b.record.ID, b.plan.scratchSize())
	if err != nil {
		return failure.Wrap(err, "scratch disk")
	}
	defer disk.Close()
	fault.Point("run.scratch")
	return failure.Wrap(b.conn.SendFile(ctx, layout.Scratch, disk), "scratch disk")
}

// boot waits until the VM is up and its agent has accepted the pod's configuration.
func (b *building) boot(ctx context.Context) error {
	_, err := b.conn.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxID: b.record.ID})
	if err == nil {
		b.e.groups.HoldCPU(&b.record, b.plan.quota, b.plan.period, b.plan.Overhead)
	}
	if err == nil && !b.record.Forked && !b.plan.Cold {
		b.e.kinds.VMs.Answered(b.record.VM, time.Since(b.cloned))
	}
	return failure.Wrap(err, "start the VM")
}

// forward passes the listeners of published ports to the shim. UDP sockets stay in the engine.
func (b *building) forward(ctx context.Context) error {
	for _, l := range b.attached.Listeners {
		entry := store.Port{HostIP: l.HostIP, HostPort: l.HostPort, PodPort: l.PodPort}
		if l.UDP != nil {
			entry.Protocol = hostports.UDP
		} else if err := publishPort(ctx, b.conn, portFile(l.HostPort), l); err != nil {
			return failure.Wrap(err, "publish port %d", l.HostPort)
		}
		b.record.Ports = append(b.record.Ports, entry)
	}
	return nil
}

// publishPort passes a listener to the shim under a name.
func publishPort(ctx context.Context, c *link.Conn, name string, l network.Listener) error {
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	source, ok := l.Listener.(interface{ File() (*os.File, error) })
	if !ok {
		return fmt.Errorf("a listener without a descriptor: %T", l.Listener)
	}
	f, err := source.File()
	if err != nil {
		return err
	}
	defer f.Close()
	if err := c.SendFile(ctx, name, f); err != nil {
		return err
	}
	_, err = c.Ext.Publish(ctx, &shimv1.PublishRequest{File: name, PodPort: uint32(l.PodPort)})
	return err
}

// portFile is the name of a published port's socket among the files for a shim.
func portFile(port int) string { return fmt.Sprintf("port-%d", port) }

// config returns the sandbox's configuration. The engine's own annotations take precedence over the user's.
func (b *building) config() sandbox.Config {
	who := b.plan.Identity
	all := maps.Clone(who.Annotations)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, map[string]string{
		"io.kubernetes.cri.container-type":    "sandbox",
		"io.kubernetes.cri.sandbox-id":        b.record.ID,
		"io.kubernetes.cri.sandbox-name":      who.Name,
		"io.kubernetes.cri.sandbox-namespace": who.Namespace,
		"io.kubernetes.cri.sandbox-uid":       who.UID,
	})
	host := guestfiles.Hostname(b.plan.Hostname, who.Name)
	b.record.IPs = b.attached.IPs
	var cards []agentv1.Network
	for _, c := range b.attached.Cards {
		cards = append(cards, *c.Guest)
		b.record.Cards = append(b.record.Cards, c.Guest.Name)
	}
	return sandbox.Config{
		Version: sandbox.ConfigVersion, ID: b.record.ID, Instance: b.e.o.Instance,
		Name: who.Name, Namespace: who.Namespace, UID: who.UID, Attempt: who.Attempt,
		Labels: who.Labels, Annotations: all, Created: b.record.Created,
		Hostname: host, Resolv: guestfiles.Resolv(b.attached.DNS), Hosts: guestfiles.Hosts(host, b.attached.IPs),
		Sysctls: b.plan.Sysctls, Network: guestNetwork(b.record.ID, b.attached), Cards: cards,
		LogBytes: b.e.o.LogBytes,
		VM:       b.plan.vm, MemoryMiB: b.plan.memory, Limits: b.plan.Size.Limits, ScratchBytes: b.plan.ScratchBytes,
	}
}

// guestNetwork returns the configuration of the guest's interface, nil if it has none.
func guestNetwork(id string, a network.Attachment) *agentv1.Network {
	if a.Guest == nil {
		return nil
	}
	guest := *a.Guest
	if guest.MAC == "" {
		guest.MAC = guestfiles.MAC(id)
	}
	return &guest
}

// attach journals and attaches a network.
func (e *Engine) attach(ctx context.Context, p network.Provider, r network.Request) (network.Attachment, error) {
	kind, _ := p.Kind()
	if _, err := e.store.Journal(r.ID).Before(ctx, unwind.Network, unwind.Attached{Kind: kind}, atomicfile.Durable); err != nil {
		return network.Attachment{}, err
	}
	return p.Attach(ctx, r)
}

// template announces to the client that the pod's template must be built first.
func (b *building) template() {
	if b.e.o.Building != nil {
		b.e.o.Building(b.plan.Identity.UID)
	}
}

// startShim writes the journal and starts the pod's shim. The shim clones its VM unless it boots or is forked.
func (b *building) startShim(ctx context.Context, fork bool) (*link.Conn, error) {
	e, r := b.e, &b.record
	o := e.shimOptions(r)
	o.VM, o.Spawn, o.Tap = r.VM, b.attached.Start, b.attached.Tap
	if !b.plan.Cold {
		t, err := e.kinds.VMs.Template(ctx, r.VM, b.template)
		if err != nil {
			return nil, err
		}
		defer t.Release() // the shim has its own descriptors by then
		o.Memory, o.State, o.Patience, r.Template = t.Memory, t.State, t.Patience, t.Key
	}
	if err := e.groups.Make(ctx, e.store.Journal(r.ID), r, b.plan.Size.MemoryLimit); err != nil {
		return nil, err
	}
	o.Spawn = group.In(r, o.Spawn)
	if _, err := e.store.Journal(r.ID).Before(ctx, unwind.Shim, struct{}{}, atomicfile.Volatile); err != nil {
		return nil, err
	}
	if userns.HostRoot() {
		uid, err := uids.Reserve(e.o.Users, r.ID)
		if err != nil {
			return nil, err
		}
		fault.Point("shim.uid")
		r.Owner = &shim.Owner{UID: uid, GID: uid}
		o.Owner = r.Owner
	}
	// The record says how to find and end the shim before it can exist.
	if err := e.store.PutPod(r); err != nil {
		return nil, err
	}
	fault.Point("shim.recorded")
	if fork {
		o.Copy = b.copyOf(o.Memory)
	}
	return e.shims.Start(ctx, o)
}

// consoleTail returns the end of the guest's console, for an error. The pod's user owns the file, so its type is
// checked.
func (e *Engine) consoleTail(id string) string {
	if id == "" {
		return ""
	}
	root, err := os.OpenRoot(e.store.StateDir(id))
	if err != nil {
		return ""
	}
	defer root.Close()
	f, err := root.OpenFile(layout.Console, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	tail, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-consoleTail), consoleTail))
	if err != nil {
		return ""
	}
	return printable.Text(string(tail))
}
