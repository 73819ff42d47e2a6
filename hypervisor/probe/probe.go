// Package probe finds out whether a guest really runs under KVM. A /dev/kvm that can be opened proves nothing: under
// some nested hypervisors QEMU aborts, or the guest spins at its first instruction.
package probe

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/pace"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// ErrUnusable is matched by Resolve's error when KVM was required and does not work.
var ErrUnusable = errors.New("KVM cannot be used")

// Outcome is the result of a probe.
type Outcome string

// The outcomes. Unknown is remembered only for a while.
const (
	Works    Outcome = "works"
	Unusable Outcome = "unusable"
	Unknown  Outcome = "unknown"
)

// Verdict is an outcome with its reason, in one line, and a remedy if there is one.
type Verdict struct {
	Outcome Outcome   `json:"outcome"`
	Reason  string    `json:"reason"`
	Remedy  string    `json:"remedy,omitempty"`
	Boot    string    `json:"boot"`   // the boot of the host that it is valid for
	Driver  string    `json:"driver"` // hash of the identity of the driver that it is valid for
	Probed  time.Time `json:"probed"`
	Tries   int       `json:"tries,omitempty"` // probes in a row that returned Unknown
}

const (
	// undecided is how long the first Unknown verdict is valid. The time doubles with each one that follows: a guest
	// that hangs under KVM keeps a processor busy for the whole timeout.
	undecided = 5 * time.Minute
	// longest is the longest time that an Unknown verdict is valid.
	longest = 24 * time.Hour
)

// holds reports whether a remembered verdict is still valid.
func (v Verdict) holds(now time.Time) bool {
	if v.Outcome == Unknown {
		age := now.Sub(v.Probed)
		return age >= 0 && age < min(undecided<<min(max(v.Tries-1, 0), 16), longest)
	}
	return v.Outcome != ""
}

// timeout is the time for a guest to boot under KVM. It is many times the usual boot time.
const timeout = 5 * time.Second

// memory is the guest's memory, in MiB.
const memory = 256

// Prober probes with one VM. It is safe for concurrent use; at worst two probes run at once and agree.
type Prober struct {
	Driver hypervisor.Driver
	// VM is the configuration to boot. Only Kernel, Initrd and Cmdline count, so that all probers of one guest share a
	// verdict.
	VM hypervisor.VMConfig
	// Check returns nil when the guest's kernel has come up.
	Check func(ctx context.Context, v hypervisor.VM) error
	// Path is the file that stores the verdict. Dir is an existing directory for the sockets, see hypervisor.Options.
	Path, Dir string
	// Timeout bounds the boot; 0 is five seconds.
	Timeout time.Duration
	// Device is opened first; "" is /dev/kvm.
	Device string
}

// Resolve turns a wish into an accelerator that works. It returns TCG at once, and decides Auto and KVM by the stored
// verdict or a probe. Auto falls back to TCG. If KVM is required and does not work, the error is ErrUnusable and the
// verdict has the reason. If KVM is required and the stored verdict is Unknown, Resolve probes again.
func (p Prober) Resolve(ctx context.Context, wish hypervisor.Accel) (hypervisor.Accel, Verdict, error) {
	if wish == hypervisor.TCG {
		return hypervisor.TCG, Verdict{Outcome: Unknown, Reason: "not asked for"}, nil
	}
	if wish != hypervisor.Auto && wish != hypervisor.KVM {
		return "", Verdict{}, fmt.Errorf("%w: accelerator %q", hypervisor.ErrInvalid, wish)
	}
	v, err := p.verdict(ctx, wish == hypervisor.KVM)
	if err != nil {
		return "", v, err
	}
	switch {
	case v.Outcome == Works:
		return hypervisor.KVM, v, nil
	case wish == hypervisor.KVM:
		return "", v, fmt.Errorf("%w: %s (with auto or tcg the VM is emulated)", ErrUnusable, v.Reason)
	}
	return hypervisor.TCG, v, nil
}

// Verdict returns the stored verdict, or probes. It returns an error if ctx ends or if the probe cannot run. A probe
// that fails is a verdict and not an error.
func (p Prober) Verdict(ctx context.Context) (Verdict, error) { return p.verdict(ctx, false) }

// verdict is like Verdict. If decide is set, it probes again when the stored verdict is Unknown.
func (p Prober) verdict(ctx context.Context, decide bool) (Verdict, error) {
	boot, err := procid.BootID()
	if err != nil {
		return Verdict{}, fmt.Errorf("probe KVM: %w", err)
	}
	m := hypervisor.VMConfig{
		Kernel: p.VM.Kernel, Initrd: p.VM.Initrd, Cmdline: p.VM.Cmdline,
		Accel: hypervisor.KVM, VCPUs: 1, Memory: memory, Network: hypervisor.NetworkNone,
	}
	identity, err := p.Driver.Identity(ctx, m)
	if err != nil {
		return Verdict{}, fmt.Errorf("probe KVM: %w", err)
	}
	sum := sha256.Sum256([]byte(identity))
	identity = hex.EncodeToString(sum[:16])
	// The check of the device is cheap, and its result can change without a reboot, so it is not stored.
	if v, ok := p.device(); !ok {
		v.Boot, v.Driver, v.Probed = boot, identity, time.Now().UTC()
		return v, nil
	}
	var last Verdict
	if err := atomicfile.ReadJSON(p.Path, &last); err != nil || last.Boot != boot || last.Driver != identity {
		last = Verdict{}
	}
	if last.holds(time.Now()) && (!decide || last.Outcome != Unknown) {
		return last, nil
	}
	v := p.boot(ctx, m)
	v.Boot, v.Driver, v.Probed = boot, identity, time.Now().UTC()
	if err := ctx.Err(); err != nil {
		return v, fmt.Errorf("probe KVM: %w", err)
	}
	if v.Outcome == Unknown {
		v.Tries = last.Tries + 1
	}
	if err := atomicfile.WriteJSON(p.Path, v, 0o644, atomicfile.Volatile); err != nil {
		return v, fmt.Errorf("store the verdict on KVM: %w", err)
	}
	return v, nil
}

func (p Prober) device() (Verdict, bool) {
	device := p.Device
	if device == "" {
		device = "/dev/kvm"
	}
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	switch {
	case err == nil:
		f.Close()
		return Verdict{}, true
	case errors.Is(err, os.ErrNotExist):
		return Verdict{
			Outcome: Unusable,
			Reason:  "there is no " + device,
			Remedy:  "enable virtualisation in the firmware, or nested virtualisation in the cloud, and load kvm_intel or kvm_amd",
		}, false
	case errors.Is(err, os.ErrPermission):
		return Verdict{Outcome: Unusable, Reason: "no permission to open " + device, Remedy: "add the user to the group kvm"}, false
	}
	return Verdict{Outcome: Unusable, Reason: err.Error()}, false
}

// boot boots a guest under KVM and returns the verdict.
func (p Prober) boot(ctx context.Context, m hypervisor.VMConfig) Verdict {
	limit := p.Timeout
	if limit == 0 {
		limit = timeout
	}
	limit = pace.Stretch(limit)
	probeCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p.sweep()
	dir, err := os.MkdirTemp(p.Dir, "probe")
	if err != nil {
		return Verdict{Outcome: Unknown, Reason: err.Error()}
	}
	defer os.RemoveAll(dir)
	console, err := os.OpenFile(filepath.Join(dir, "console"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Verdict{Outcome: Unknown, Reason: err.Error()}
	}
	defer console.Close()
	// This VM has no record. The kernel kills it when the thread that started it ends, so the thread is kept until
	// then.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	v, err := p.Driver.Boot(probeCtx, m, hypervisor.Files{Console: console}, hypervisor.Options{Dir: dir, Name: "probe", Start: start})
	if err == nil {
		err = p.check(probeCtx, v)
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		err = errors.Join(err, v.Kill(end), v.Close())
	}
	return judge(err, limit)
}

// judge returns the verdict on a boot that took at most limit. KVM is unusable only if QEMU or its guest ended by
// itself. Other failures may be due to a host that is busy or short of something, and may differ the next time.
func judge(err error, limit time.Duration) Verdict {
	switch {
	case err == nil:
		return Verdict{Outcome: Works, Reason: "a guest has booted under KVM"}
	case errors.Is(err, hypervisor.ErrGone) && !starved(err):
		return Verdict{Outcome: Unusable, Reason: "KVM exists but does not work: " + err.Error()}
	case errors.Is(err, context.DeadlineExceeded):
		return Verdict{
			Outcome: Unknown,
			Reason:  fmt.Sprintf("KVM exists, but a guest did not boot under it within %v: KVM does not work, or the host is busy", limit),
			Remedy:  "bulkhead check --probe gives it more time",
		}
	}
	return Verdict{Outcome: Unknown, Reason: "KVM could not be tried: " + err.Error()}
}

// starved reports whether a VM ended because the host had too little memory.
func starved(err error) bool {
	var e *hypervisor.Error
	return strings.Contains(err.Error(), "signal: killed") ||
		errors.As(err, &e) && strings.Contains(e.Stderr, "Cannot allocate memory")
}

// leftAfter is the age at which a probe's directory is taken for the remains of a killed process.
const leftAfter = time.Minute

// sweep removes the remains of probes by killed processes. It ignores failures: the remains do no harm.
func (p Prober) sweep() {
	found, _ := filepath.Glob(filepath.Join(p.Dir, "probe*"))
	for _, dir := range found {
		if info, err := os.Lstat(dir); err == nil && time.Since(info.ModTime()) > leftAfter {
			_ = os.RemoveAll(dir)
		}
	}
}

// start starts a VM that the kernel kills when this process ends.
func start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return cmd.Start()
}

// check waits until the guest has come up or the VM has ended.
func (p Prober) check(ctx context.Context, v hypervisor.VM) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- p.Check(ctx, v) }()
	select {
	case err := <-result:
		if err != nil {
			err = v.Explain("wait for the guest", err)
		}
		return err
	case <-v.Done():
		cancel()
		<-result //nolint:errcheck // its end counts, not its error
		return v.Explain("wait for the guest", errors.New("it did not come up"))
	}
}
