package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/probe"
	"github.com/bulkhead-project/bulkhead/sandbox/ready"
)

// guestMemory is the boot memory of a probe's guest, in MiB, as for a small pod.
const guestMemory = 256

// freshTimeout is the time for a repeated probe of KVM, more than at the start of a pod.
const freshTimeout = 30 * time.Second

// kvm is the result of the probe of KVM.
type kvm struct {
	verdict probe.Verdict
	err     error // the probe failed
}

// lacking returns why a guest cannot be booted. The finding before this one has the remedy.
func (m *host) lacking() string {
	switch {
	case m.driver == nil:
		return "not tried: there is no QEMU"
	case m.bundle == nil:
		return "not tried: there is no guest bundle"
	case !m.stateOK:
		return "not tried: there is no directory for its sockets"
	}
	return ""
}

func (m *host) accelerator(ctx context.Context) Finding {
	if why := m.lacking(); why != "" {
		return warn(why, "")
	}
	dir, leave, err := m.room()
	if err != nil {
		return judgeAccelerator(kvm{err: err})
	}
	defer leave()
	// The engine's own file: the next pod uses this result.
	path := filepath.Join(m.options.Roots.State, "kvm.json")
	if m.options.Fresh {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return judgeAccelerator(kvm{err: err})
		}
	}
	p := probe.Prober{Driver: m.driver, VM: m.guestVM(hypervisor.KVM), Check: ready.Answering, Path: path, Dir: dir}
	if m.options.Fresh {
		p.Timeout = freshTimeout
	}
	m.accel = hypervisor.TCG
	var k kvm
	if k.verdict, k.err = p.Verdict(ctx); k.err == nil && k.verdict.Outcome == probe.Works {
		m.accel = hypervisor.KVM
	}
	return judgeAccelerator(k)
}

// judgeAccelerator never fails, because pods can run with emulation.
func judgeAccelerator(k kvm) Finding {
	const emulated = "; VMs are emulated, and containers compute several times more slowly"
	switch {
	case k.err != nil:
		return warn(fmt.Sprintf("KVM could not be probed: %v%s", k.err, emulated), "")
	case k.verdict.Outcome == probe.Works:
		return ok("KVM: " + k.verdict.Reason)
	}
	remedy := k.verdict.Remedy
	if remedy == "" {
		remedy = "use a host with KVM for a stock kernel: bare metal, or full nested virtualisation; bulkhead check --probe tries again"
	}
	return warn(k.verdict.Reason+emulated, remedy)
}

// guestVM returns a VM with a device of each kind that a pod's VM has.
func (m *host) guestVM(accel hypervisor.Accel) hypervisor.VMConfig {
	net := hypervisor.NetworkRestricted
	if m.options.CRI != nil && m.options.CRI.CNIConf != "" {
		net = hypervisor.NetworkNone // taps have a probe of their own, and not every QEMU has a user network
	}
	return hypervisor.VMConfig{
		Kernel: m.bundle.KernelPath(), Initrd: m.bundle.InitrdPath(), Cmdline: m.bundle.Cmdline,
		Accel: accel, VCPUs: 1, MaxVCPUs: 2, Memory: guestMemory, MaxMem: 2 * guestMemory, Slots: 2, Scratch: 1,
		Network: net,
	}
}

// booted is the result of a boot up to the agent's first answer.
type booted struct {
	accel hypervisor.Accel
	took  time.Duration
	err   error
}

func (m *host) boot(ctx context.Context) Finding {
	if why := m.lacking(); why != "" {
		return fail(why, "")
	}
	b := booted{accel: m.accel}
	began := time.Now()
	b.err = m.bootOnce(ctx)
	b.took = time.Since(began)
	return judgeBoot(b)
}

func (m *host) bootOnce(ctx context.Context) error {
	dir, leave, err := m.room()
	if err != nil {
		return err
	}
	defer leave()
	console, err := os.OpenFile(filepath.Join(dir, "console"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer console.Close()
	runtime.LockOSThread() // the VM ends with this thread
	defer runtime.UnlockOSThread()
	v, err := m.driver.Boot(ctx, m.guestVM(m.accel), hypervisor.Files{Console: console},
		hypervisor.Options{Dir: dir, Name: "check", Start: tied})
	if err != nil {
		return err
	}
	err = untilEnd(ctx, v)
	endCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return errors.Join(err, v.Kill(endCtx), v.Close())
}

// untilEnd waits for the agent, or for the VM's end.
func untilEnd(ctx context.Context, v hypervisor.VM) error {
	err := ready.Answering(ctx, v)
	if err == nil {
		return nil
	}
	// A broken connection is most often the first sign of that end.
	select {
	case <-v.Done():
		err = errors.New("the VM ended before its agent answered")
	case <-time.After(time.Second):
	case <-ctx.Done():
		err = fmt.Errorf("its agent did not answer: %w", ctx.Err())
	}
	return v.Explain("boot a guest", err)
}

func judgeBoot(b booted) Finding {
	if b.err != nil {
		f := fail(fmt.Sprintf("a guest did not boot under %s: %v", b.accel, b.err),
			"see the guest's console with --detail; build the bundle again: make guest")
		if d, ok := errors.AsType[interface {
			error
			Detail() string
		}](b.err); ok {
			f.Detail = d.Detail()
		}
		return f
	}
	return ok(fmt.Sprintf("a guest booted under %s and its agent answered after %.1f s (pods are cloned from a saved one, and faster)",
		b.accel, b.took.Seconds()))
}
