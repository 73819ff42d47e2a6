package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/annotations"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/cri/store"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/layout"
	"github.com/bulkhead-project/bulkhead/shim/uids"
)

// configType is the type of CreateSandbox's options: a sandbox.Config as JSON.
const configType = "io.bulkhead.sandbox.Config+json"

// defaultScratch is what a pod may write where no limit is set, in bytes.
const defaultScratch = 10 << 30

const (
	scratchFile = "scratch.img"
	consoleTail = 4096 // bytes of the console that an error carries
)

// attach readies the pod's network, that of a member once more as its pod wants it.
func (b *building) attach(ctx context.Context) (err error) {
	b.undo.Push("ports", func(context.Context) error { b.closeListeners(); return nil })
	request := b.plan.network
	request.ID = b.record.ID
	if b.record.WasPooled {
		b.attached, err = b.plan.provider.Attach(ctx, request)
	} else {
		b.attached, err = b.s.attach(ctx, b.plan.provider, request)
	}
	return fail(err, "network")
}

// start starts the shim, and with it the machine, which comes up while the
// rest is made ready.
func (b *building) start(ctx context.Context) (err error) {
	b.conn, err = b.s.startShim(ctx, &b.record, b.attached, b.plan.cold, b.template)
	return fail(err, "start the shim")
}

// create tells the shim what the pod is.
func (b *building) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if !b.record.WasPooled { // a member has it
		if err := b.s.sendScratch(ctx, b.record.ID, b.conn, b.plan.scratchSize()); err != nil {
			return err
		}
	}
	config := b.config()
	if err := atomicfile.WriteJSON(filepath.Join(b.s.store.Dir(b.record.ID), "config.json"), config, 0o600, atomicfile.Volatile); err != nil {
		return fail(err, "store")
	}
	raw, err := json.Marshal(config)
	if err != nil {
		return fail(err, "encode the configuration")
	}
	_, err = b.conn.CreateSandbox(ctx, &sandboxv1.CreateSandboxRequest{
		SandboxID: b.record.ID, Options: &anypb.Any{TypeUrl: configType, Value: raw},
	})
	return fail(err, "create the sandbox")
}

// sendScratch makes a pod's scratch disk and gives it to its shim.
func (s *Service) sendScratch(ctx context.Context, id string, c *conn, size int64) error {
	path := filepath.Join(s.store.Dir(id), scratchFile)
	if err := s.scratch.Create(ctx, path, size); err != nil {
		return fail(err, "scratch disk")
	}
	fault.Point("run.scratch")
	disk, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fail(err, "scratch disk")
	}
	defer disk.Close()
	return fail(c.sendFile(ctx, layout.Scratch, disk), "scratch disk")
}

// boot waits for the machine to be up and its agent to have taken the pod's
// configuration.
func (b *building) boot(ctx context.Context) error {
	_, err := b.conn.StartSandbox(ctx, &sandboxv1.StartSandboxRequest{SandboxID: b.record.ID})
	if err == nil {
		b.s.holdCPU(&b.record, b.plan.quota, b.plan.period, b.plan.overhead)
	}
	return fail(err, "start the machine")
}

// forward hands the published ports' listeners to the shim.
func (b *building) forward(ctx context.Context) error {
	for _, l := range b.attached.Listeners {
		if err := publishPort(ctx, b.conn, l); err != nil {
			return fail(err, "publish port %d", l.HostPort)
		}
		b.record.Ports = append(b.record.Ports, store.Port{HostIP: l.HostIP, HostPort: l.HostPort, PodPort: l.PodPort})
	}
	return nil
}

func publishPort(ctx context.Context, c *conn, l network.Listener) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
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
	name := fmt.Sprintf("port-%d", l.HostPort)
	if err := c.sendFile(ctx, name, f); err != nil {
		return err
	}
	_, err = c.ext.Publish(ctx, &shimv1.PublishRequest{File: name, PodPort: uint32(l.PodPort)})
	return err
}

// config is the sandbox's configuration. The engine's own annotations win over
// the user's.
func (b *building) config() sandbox.Config {
	meta := b.plan.config.GetMetadata()
	all := maps.Clone(b.plan.config.GetAnnotations())
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, map[string]string{
		"io.kubernetes.cri.container-type":    "sandbox",
		"io.kubernetes.cri.sandbox-id":        b.record.ID,
		"io.kubernetes.cri.sandbox-name":      meta.GetName(),
		"io.kubernetes.cri.sandbox-namespace": meta.GetNamespace(),
		"io.kubernetes.cri.sandbox-uid":       meta.GetUid(),
	})
	host := hostname(b.plan.config)
	c := sandbox.Config{
		Version: sandbox.ConfigVersion, ID: b.record.ID, Instance: b.s.o.Instance,
		Name: meta.GetName(), Namespace: meta.GetNamespace(), UID: meta.GetUid(), Attempt: meta.GetAttempt(),
		Labels: b.plan.config.GetLabels(), Annotations: all, Created: b.record.Created,
		Hostname: host, Resolv: resolv(b.attached.DNS),
		Hosts: hosts(host, b.attached.IPs), Sysctls: b.plan.sysctls,
		Machine: b.plan.machine, MemoryMiB: b.plan.memory, Limits: podLimits(b.plan.config), ScratchBytes: b.plan.scratch,
		LogBytes: b.s.o.LogBytes,
	}
	c.Network = guestNetwork(b.record.ID, b.attached)
	b.record.IPs = b.attached.IPs
	return c
}

// podLimits are the limits that hold for the pod as a whole.
func podLimits(config *runtimeapi.PodSandboxConfig) agentv1.PodLimits {
	var l agentv1.PodLimits
	r := config.GetLinux().GetResources()
	for _, name := range strings.Split(config.GetAnnotations()[annotations.PodLimits], ",") {
		switch name {
		case "memory":
			l.MemoryBytes = r.GetMemoryLimitInBytes()
		case "cpu":
			l.CPUQuota, l.CPUPeriod = r.GetCpuQuota(), r.GetCpuPeriod()
		}
	}
	return l
}

// guestNetwork is how the guest sets up its interface, nil if it has none.
func guestNetwork(id string, a network.Attachment) *agentv1.Network {
	if a.Guest == nil {
		return nil
	}
	guest := *a.Guest
	if guest.MAC == "" {
		guest.MAC = macOf(id)
	}
	return &guest
}

// attach journals and attaches a network.
func (s *Service) attach(ctx context.Context, p network.Provider, r network.Request) (network.Attachment, error) {
	kind, _ := p.Kind()
	if _, err := s.store.Journal(r.ID).Before(ctx, undoNetwork, networkUndo{Kind: kind}, atomicfile.Durable); err != nil {
		return network.Attachment{}, err
	}
	return p.Attach(ctx, r)
}

// template tells whoever waits for the pod that its template is built first.
func (b *building) template() {
	if b.s.o.Building != nil {
		b.s.o.Building(b.plan.config.GetMetadata().GetUid())
	}
}

// startShim journals and starts a shim, as a clone unless cold.
func (s *Service) startShim(ctx context.Context, r *store.Pod, a network.Attachment, cold bool, building func()) (*conn, error) {
	o := s.shimOptions(r)
	o.Machine, o.Spawn = r.Machine, a.Start
	if !cold {
		t, err := s.machines.Template(ctx, r.Machine, building)
		if err != nil {
			return nil, err
		}
		o.Memory, o.State, r.Template = t.memory, t.state, t.key
	}
	if err := s.makeGroup(ctx, r); err != nil {
		return nil, err
	}
	o.Spawn = inGroup(r, o.Spawn)
	if _, err := s.store.Journal(r.ID).Before(ctx, undoShim, struct{}{}, atomicfile.Volatile); err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 {
		uid, err := uids.Reserve(s.uids(), r.ID)
		if err != nil {
			return nil, err
		}
		fault.Point("shim.uid")
		r.Owner = &shim.Owner{UID: uid, GID: uid}
		o.Owner = r.Owner
	}
	// Before the shim can exist, the record says how to find and end it.
	if err := s.store.PutPod(r); err != nil {
		return nil, err
	}
	fault.Point("shim.recorded")
	return s.shims.Start(ctx, o)
}

func (s *Service) uids() string { return filepath.Join(s.o.Roots.Data, "uids") }

// consoleTail is the end of the guest's console, for an error. The file
// belongs to the pod's user, so nothing about it is believed.
func (s *Service) consoleTail(id string) string {
	if id == "" {
		return ""
	}
	root, err := os.OpenRoot(s.store.StateDir(id))
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
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	return printable(string(tail))
}

// printable keeps a guest's bytes from doing anything to a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}
