package rows

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/busybox"
	"github.com/bulkhead-project/bulkhead/internal/pss"
	"github.com/bulkhead-project/bulkhead/tools/bench/containerd"
	"github.com/bulkhead-project/bulkhead/tools/bench/kubelet"
	"github.com/bulkhead-project/bulkhead/tools/bench/payload"
	"github.com/bulkhead-project/bulkhead/tools/bench/procs"
	"github.com/bulkhead-project/bulkhead/tools/bench/report"
	"github.com/bulkhead-project/bulkhead/tools/bench/site"
)

// cniPlugins is the directory of Debian's package.
const cniPlugins = "/usr/lib/cni"

// cniNetwork is the network of the pods of both runtimes.
const cniNetwork = `{"cniVersion": "1.0.0", "name": "bulkhead-bench", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": {"type": "host-local", "dataDir": "DATA",
    "ranges": [[{"subnet": "10.88.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}`

// cri measures a kubelet's calls, beside containerd on the same network.
func cri(ctx context.Context, b *Bench) error {
	conf, err := b.cniConf()
	if err != nil {
		return err
	}
	s, err := b.site(ctx, &b.Builds[0], false)
	if err != nil {
		return err
	}
	ours, err := s.Serve(ctx, conf, cniPlugins)
	if err != nil {
		return err
	}
	b.served = append(b.served, ours) // Close closes it from here on
	theirs, absent, err := b.beside(ctx, conf)
	if err != nil {
		return err
	}
	image, err := b.pulled(ctx, ours.Kubelet)
	if err == nil && absent == "" {
		err = theirs.Pull(ctx, image)
	}
	if err != nil {
		return err
	}
	rest := func(ctx context.Context) error { return b.rest(ctx, ours, image) }
	mine := b.newRuntime("", "bulkhead cri", "", rest)
	mine.k, mine.account, mine.image, mine.phases = ours.Kubelet, ours.Account, image, ours.Phases
	other := b.newRuntime("containerd", "containerd with runc", absent, rest)
	if absent == "" {
		other.k, other.account, other.image = theirs.Kubelet, theirs.Account, image
	}
	if err := b.pair(ctx, b.Runs, mine.life(), other.life()); err != nil {
		return err
	}
	if err := b.pair(ctx, max(b.Runs/10, 1), mine.crowd(b.Pods), other.crowd(b.Pods)); err != nil {
		return err
	}
	for _, r := range []struct {
		name string
		aim  float64
		row  func(*runtime) *report.Row
	}{
		{"start, ours : containerd's", 1, func(r *runtime) *report.Row { return r.sum }},
		{"ExecSync, ours : containerd's", 1.3, func(r *runtime) *report.Row { return r.exec }},
		{"Stop + Remove, ours : containerd's", 0.7, func(r *runtime) *report.Row { return r.end }},
		{"at once, ours : containerd's", 1.5, func(r *runtime) *report.Row { return r.burst }},
	} {
		b.ratio(report.Row{Group: "cri", Name: r.name, Unit: "×", Aim: r.aim, Phases: r.row(mine).Phases}, r.row(mine), r.row(other))
	}
	return nil
}

// cniConf returns a directory with the configuration of the pods' network.
func (b *Bench) cniConf() (string, error) {
	dir, err := b.mkdir("cni")
	if err != nil {
		return "", err
	}
	text := strings.ReplaceAll(cniNetwork, "DATA", filepath.Join(b.Dir, "leases"))
	return dir, os.WriteFile(filepath.Join(dir, "10-bench.conflist"), []byte(text), 0o600)
}

// pulled makes a runtime pull a small image from a registry, and returns its reference.
func (b *Bench) pulled(ctx context.Context, k *kubelet.Kubelet) (string, error) {
	img, err := busybox.Image(ctx, busybox.Binary)
	if err != nil {
		return "", err
	}
	if b.registry, err = payload.Serve(ctx, img); err != nil {
		return "", err
	}
	return b.registry.Reference, k.Pull(ctx, b.registry.Reference)
}

// beside returns containerd on CNI's network with the small image, or why it is absent.
func (b *Bench) beside(ctx context.Context, conf string) (*containerd.Containerd, string, error) {
	dir, err := b.mkdir("cn")
	if err != nil {
		return nil, "", err
	}
	return b.openContainerd(ctx, containerd.Options{Dir: dir, Account: b.account(dir), CNIConf: conf, CNIBin: cniPlugins})
}

// rest waits for a server to come to rest, and notes it if it does not.
func (b *Bench) rest(ctx context.Context, v *site.Server, image string) error {
	err := v.AwaitIdle(ctx, image)
	if err != nil && ctx.Err() == nil {
		b.note("the host did not " + err.Error())
		return nil
	}
	return err
}

// runtime is a runtime that a kubelet calls, with its rows.
type runtime struct {
	k       *kubelet.Kubelet
	account interface{ Used() (time.Duration, error) }
	image   string
	rest    func(ctx context.Context) error
	// phases returns the phases of a pod's calls. It is nil if the runtime does not report them.
	phases func(ctx context.Context, p *kubelet.Pod) ([]kubelet.Phase, error)

	run, create, start, sum, first, exec, stop, removal, end *report.Row

	cpu, burst, memory *report.Row
}

func (b *Bench) newRuntime(name, what, absent string, rest func(context.Context) error) *runtime {
	add := func(row, unit string, aim float64, explained string) *report.Row {
		return b.rivalRow(report.Row{Group: "cri", Name: row, Unit: unit, Aim: aim, What: explained}, &rival{
			name: name, what: what, absent: absent,
		})
	}
	return &runtime{
		rest:    rest,
		run:     add("RunPodSandbox", "ms", 0, "the call, with a network of CNI's: bridge, host-local and portmap"),
		create:  add("CreateContainer", "ms", 0, "the call, of busybox sleep"),
		start:   add("StartContainer", "ms", 0, "the call"),
		sum:     add("start", "ms", 0, "the three calls together"),
		first:   add("ExecSync, first", "ms", 0, "the call, of true: the first in a pod that idles"),
		exec:    add("ExecSync", "ms", 0, fmt.Sprintf("the %d after it", laterExecs)),
		stop:    add("StopPodSandbox", "ms", 0, "the call, which kills the container"),
		removal: add("RemovePodSandbox", "ms", 0, "the call"),
		end:     add("Stop + Remove", "ms", 0, "the two calls together"),
		cpu:     add("CPU of a pod's life", "ms", 0, "processor time of all processes, by their cgroup, until all is at rest again"),
		burst:   add(fmt.Sprintf("%d at once", b.Pods), "ms", 0, "the three calls for each of so many pods, until all run"),
		memory: add(fmt.Sprintf("memory of a pod at %d", b.Pods), "MB", 40,
			"proportional memory (PSS) of all processes, less that without the pods, divided by the pods"),
	}
}

// life measures a pod from its start to its removal.
func (r *runtime) life() contender {
	return contender{row: r.sum, prepare: r.rest, sample: r.live}
}

func (r *runtime) live(ctx context.Context) (err error) {
	before, err := r.account.Used()
	if err != nil {
		return err
	}
	p, err := r.k.Start(ctx, "one", r.image, "sleep", "100000")
	if err != nil {
		return errors.Join(err, r.k.End(ctx, p))
	}
	r.run.Add(ms(p.Run))
	r.create.Add(ms(p.Create))
	r.start.Add(ms(p.Start))
	r.sum.Add(ms(p.Run + p.Create + p.Start))
	r.sum.AddPhase("CreateContainer", ms(p.Create))
	r.sum.AddPhase("StartContainer", ms(p.Start))
	known, err := r.part(ctx, p, r.sum, nil)
	if err == nil {
		err = r.rest(ctx)
	}
	if err == nil {
		err = r.execs(ctx, p)
	}
	err = errors.Join(err, r.k.EndWith(ctx, p, func() error {
		_, err := r.part(ctx, p, r.end, known)
		return err
	}))
	if err != nil {
		return err
	}
	r.stop.Add(ms(p.Stop))
	r.removal.Add(ms(p.Removal))
	r.end.Add(ms(p.Stop + p.Removal))
	r.end.AddPhase("RemovePodSandbox", ms(p.Removal))
	if err := r.rest(ctx); err != nil {
		return err
	}
	after, err := r.account.Used()
	r.cpu.Add(ms(after - before))
	return err
}

// execs runs the commands in a pod. One phase is everything except the command: the round trip to the pod.
func (r *runtime) execs(ctx context.Context, p *kubelet.Pod) error {
	for i := range 1 + laterExecs {
		took, err := r.k.Exec(ctx, p, "true")
		if err != nil {
			return err
		}
		if i == 0 {
			r.first.Add(ms(took))
			continue
		}
		r.exec.Add(ms(took))
		if r.phases == nil {
			continue
		}
		trip, err := r.k.RoundTrip(ctx, p)
		if err != nil {
			return err
		}
		r.exec.AddPhase("engine, shim and agent, as of ContainerStats", ms(trip))
		r.exec.AddPhase("crun and the command in the VM: the rest", ms(took-trip))
	}
	return nil
}

// part adds the newly reported phases to a row.
func (r *runtime) part(ctx context.Context, p *kubelet.Pod, row *report.Row, known map[string]bool) (map[string]bool, error) {
	names := map[string]bool{}
	if r.phases == nil {
		return names, nil
	}
	all, err := r.phases(ctx, p)
	for _, phase := range all {
		names[phase.Name] = true
		if !known[phase.Name] {
			row.AddPhase(phase.Name, ms(phase.Took))
		}
	}
	return names, err
}

// crowd starts and removes that many pods at once.
func (r *runtime) crowd(n int) contender {
	return contender{row: r.burst, prepare: r.rest, sample: func(ctx context.Context) error {
		empty, err := weight()
		if err != nil {
			return err
		}
		pods, names := make([]*kubelet.Pod, n), site.Names("crowd", n)
		took, err := atOnce(n, func(i int) (err error) {
			pods[i], err = r.k.Start(ctx, names[i], r.image, "sleep", "100000")
			return err
		})
		if err == nil {
			r.burst.Add(ms(took))
			err = r.rest(ctx)
		}
		if full, weighed := weight(); err == nil {
			r.memory.Add(mb(full-empty) / float64(n))
			err = weighed
		}
		_, ended := atOnce(n, func(i int) error {
			return r.k.End(ctx, pods[i])
		})
		return errors.Join(err, ended)
	}}
}

// weight returns the memory of all processes of the benchmark.
func weight() (sum int64, err error) {
	all, err := procs.Below(procs.Root())
	for _, p := range all {
		if n, err := pss.Of(p.PID); err == nil { // it may have ended
			sum += n
		}
	}
	return sum, err
}
