package engine

import (
	"context"
	"path/filepath"
	"time"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/link"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/shortid"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// Facts describe a pod's VM.
type Facts struct {
	ID        string  `json:"id"`
	State     string  `json:"state"` // ready, running, paused, stopped
	Accel     string  `json:"accel"`
	AccelNote string  `json:"accelNote,omitempty"` // why no better one
	Network   string  `json:"network"`             // user, restricted, none
	NetNote   string  `json:"networkNote,omitempty"`
	Clone     bool    `json:"clone"`              // from a template; else
	Forked    bool    `json:"forked"`             // from a parent; else
	ForkNote  string  `json:"forkNote,omitempty"` // why a clone was not forked
	Template  string  `json:"template,omitempty"`
	VMPID     int     `json:"vmPID,omitempty"`
	ShimPID   int     `json:"shimPID,omitempty"`
	VCPUs     int     `json:"vcpus"`
	MemoryMiB int64   `json:"memoryMiB"`
	Phases    []Phase `json:"phases,omitempty"` // of the start and the stop, first the engine's, then the VM's
	Exit      string  `json:"exit,omitempty"`   // why the VM ended
	// Console and ShimLog are files on the host with a bounded size. Their content is untrusted.
	Console string `json:"console,omitempty"`
	ShimLog string `json:"shimLog,omitempty"`
	Ports   []Port `json:"ports,omitempty"`
	// WallsNote names the walls around VMs that the host's kernel lacks; it is empty if none is missing.
	WallsNote string `json:"wallsNote,omitempty"`
	// Cgroup is the pod's cgroup on the host, around its VM and shim.
	Cgroup Cgroup `json:"cgroup"`
}

// Cgroup limits a pod to its size on the host.
type Cgroup struct {
	Dirs   []string `json:"dirs,omitempty"`   // empty without a cgroup
	Memory int64    `json:"memory,omitempty"` // bytes, with the VM's overhead
	CPUs   float64  `json:"cpus,omitempty"`   // likewise; 0 means all CPUs of the host
	// Note says why limits are missing.
	Note string `json:"note,omitempty"`
}

// Phase is one step of a start and its duration.
type Phase struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took"`
}

// Port is a published port with the host port that it got.
type Port struct {
	HostIP   string `json:"hostIP"`
	HostPort int    `json:"hostPort"`
	PodPort  int    `json:"podPort"`
	Protocol string `json:"protocol,omitempty"` // "udp", or empty for TCP
}

// PausePod pauses a pod's VM. It is idempotent.
func (e *Engine) PausePod(ctx context.Context, id string) error {
	p, c, err := e.live(id)
	if err != nil {
		return err
	}
	if err := p.acquire(ctx); err != nil {
		return err
	}
	defer p.done()
	if p.isPaused() {
		return nil
	}
	p.mu.Lock()
	p.pauses++ // even if the call fails, the VM may be paused from now on
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	if _, err := c.Ext.Pause(ctx, &shimv1.PauseRequest{}); err != nil {
		return failure.Wrap(err, "pause pod %s", shortid.Of(p.id))
	}
	p.setPaused(true)
	return nil
}

// ResumePod resumes a paused VM. It is idempotent.
func (e *Engine) ResumePod(ctx context.Context, id string) error {
	p, c, err := e.live(id)
	if err != nil {
		return err
	}
	if err := p.acquire(ctx); err != nil {
		return err
	}
	defer p.done()
	if !p.isPaused() {
		return nil
	}
	return failure.Wrap(p.resume(ctx, c), "resume pod %s", shortid.Of(p.id))
}

func (p *pod) resume(ctx context.Context, c *link.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	if _, err := c.Ext.Resume(ctx, &shimv1.ResumeRequest{}); err != nil {
		return err
	}
	p.setPaused(false)
	return nil
}

// Pauses returns how often this engine has paused a pod's VM, and whether it is paused now. It makes no calls. For
// an unknown pod it returns 0 and false.
func (e *Engine) Pauses(id string) (times uint64, now bool) {
	p, err := e.find(id)
	if err != nil {
		return 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pauses, p.paused
}

// Facts returns the facts about the pod's VM. For a stopped pod they describe its last state.
func (e *Engine) Facts(ctx context.Context, id string) (*Facts, error) {
	p, err := e.find(id)
	if err != nil {
		return nil, err
	}
	return p.facts(ctx), nil
}

func (p *pod) facts(ctx context.Context) *Facts {
	r := p.snapshot()
	dir := p.e.store.StateDir(p.id)
	f := &Facts{
		ID: p.id, State: "stopped", Accel: string(r.VM.Accel), AccelNote: r.AccelNote,
		Network: string(r.VM.Network), NetNote: r.NetNote, Clone: r.Template != "", Forked: r.Forked, ForkNote: r.ForkNote,
		Template: r.Template, VCPUs: max(r.VCPUs, r.VM.VCPUs), MemoryMiB: int64(r.MemoryMiB), Exit: r.Exit,
		Console: filepath.Join(dir, layout.Console), ShimLog: filepath.Join(dir, layout.Log),
	}
	for _, t := range r.Phases {
		f.Phases = append(f.Phases, Phase{t.Name, t.Took})
	}
	f.Ports = portsOf(&r)
	if p.e.missing != nil {
		f.WallsNote = p.e.missing.Error()
	}
	f.Cgroup = Cgroup{Dirs: r.Cgroup.Dirs, Memory: r.Cgroup.Limits.Memory, Note: r.Cgroup.Note}
	if l := r.Cgroup.Limits; l.Quota > 0 {
		f.Cgroup.CPUs = float64(l.Quota) / float64(l.Period)
	}
	c, err := p.shim()
	if err != nil {
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, link.CallTimeout)
	defer cancel()
	st, err := c.Ext.Status(ctx, &shimv1.StatusRequest{})
	if err != nil {
		return f
	}
	f.State, f.VMPID, f.ShimPID, f.Exit = st.GetState(), int(st.GetVmPid()), int(st.GetShimPid()), st.GetExitReason()
	if st.GetMemoryMib() > 0 {
		f.MemoryMiB = st.GetMemoryMib()
	}
	for _, phase := range st.GetPhases() {
		f.Phases = append(f.Phases, Phase{"machine: " + phase.GetName(), time.Duration(phase.GetMicroseconds()) * time.Microsecond})
	}
	return f
}

// Dir returns the directory with a pod's records and disk.
func (e *Engine) Dir(id string) string { return e.store.Dir(id) }

// StateDir returns the directory with the sockets of a pod's shim (package shim/layout).
func (e *Engine) StateDir(id string) string { return e.store.StateDir(id) }

func portsOf(r *store.Pod) []Port {
	var out []Port
	for _, p := range r.Ports {
		out = append(out, Port(p))
	}
	return out
}

// Resolver returns the DNS configuration of a kind of network, for pods without their own.
func Resolver(kind string) network.DNS { return network.Resolver(network.Kind(kind)) }
