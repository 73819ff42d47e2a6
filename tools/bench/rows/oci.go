package rows

import (
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/bulkhead-project/bulkhead/internal/busybox"
	"github.com/bulkhead-project/bulkhead/internal/pss"
	"github.com/bulkhead-project/bulkhead/tools/bench/containerd"
	"github.com/bulkhead-project/bulkhead/tools/bench/procs"
	"github.com/bulkhead-project/bulkhead/tools/bench/report"
	"github.com/bulkhead-project/bulkhead/tools/bench/runtimes"
	"github.com/bulkhead-project/bulkhead/tools/bench/site"
)

// runtimeRows are the rows of an OCI runtime that is called directly.
type runtimeRows struct {
	*runtimes.Runtime
	create, start, exec, delete *report.Row
}

// ociBench is the state of the group oci.
type ociBench struct {
	*Bench
	site *site.Site
	own  *runtimeRows
}

// ociRuntimes measures OCI runtimes and their clients.
func ociRuntimes(ctx context.Context, b *Bench) error {
	s, err := b.site(ctx, &b.Builds[0], false)
	if err != nil {
		return err
	}
	o := &ociBench{Bench: b, site: s}
	if err := o.calls(ctx); err != nil {
		return err
	}
	if err := o.clients(ctx); err != nil {
		return err
	}
	return o.idle(ctx)
}

// rest waits until the processes are at rest.
func (o *ociBench) rest(ctx context.Context) error { return o.awaitIdle(ctx, o.site) }

// runtime adds the rows of a runtime. An empty name is bulkhead-oci's.
func (o *ociBench) runtime(name string, unified bool, command ...string) (*runtimeRows, error) {
	dir, err := o.mkdir("oci" + name)
	if err != nil {
		return nil, err
	}
	r := &runtimeRows{Runtime: &runtimes.Runtime{Command: command, Dir: dir, Unified: unified, Account: o.account(dir)}}
	if r.Account != nil {
		r.Groups = r.Account.Path
	}
	absent := ""
	if _, err := osexec.LookPath(command[0]); err != nil {
		absent = err.Error()
	}
	add := func(call string, aim float64, what string) *report.Row {
		row := report.Row{Group: "oci", Name: call, Unit: "ms", Aim: aim, Absent: absent, What: "bulkhead-oci " + what}
		if name != "" {
			row.Name, row.Aim, row.What = call+" ("+name+")", 0, name+": the same"
		} else {
			r.Env = o.site.Environ()
		}
		return o.row(row, nil)
	}
	r.create = add("create", 90, "create of a container of busybox sleep, without a network")
	r.start = add("start", 15, "start")
	r.exec = add("exec true", 0, "exec of true in the container")
	r.delete = add("delete", 15, "delete after a kill, from the end of the container's process")
	return r, nil
}

// calls measures the calls of clients to a runtime.
func (o *ociBench) calls(ctx context.Context) error {
	var all []contender
	var rows []*runtimeRows
	for _, one := range []struct {
		name    string
		unified bool
		command []string
	}{
		{"", false, []string{filepath.Join(o.Builds[0].Bin, "bulkhead-oci")}},
		{"runc", false, []string{"runc"}},
		{"crun", true, []string{filepath.Join(o.Builds[0].Bin, "../build/crun/crun"), "--cgroup-manager=disabled"}},
	} {
		r, err := o.runtime(one.name, one.unified, one.command...)
		if err != nil {
			return err
		}
		rows = append(rows, r)
		all = append(all, contender{row: r.create, prepare: o.rest, sample: func(ctx context.Context) error {
			l, err := r.Live(ctx)
			if err == nil {
				r.create.Add(ms(l.Create))
				r.start.Add(ms(l.Start))
				r.exec.Add(ms(l.Exec))
				r.delete.Add(ms(l.Delete))
			}
			return err
		}})
	}
	o.own = rows[0]
	if _, err := o.own.Live(ctx); err != nil { // makes the parent of its VMs
		return err
	}
	return o.pair(ctx, o.Runs, all...)
}

// clients measures podman, docker and ctr with runc and in VMs.
func (o *ociBench) clients(ctx context.Context) error {
	own, err := o.wrapper()
	if err != nil {
		return err
	}
	p, absent, err := o.baseline(ctx)
	if err != nil {
		return err
	}
	err = o.client(ctx, "podman run --rm", 1.5, absent, func(ctx context.Context, vm bool, _ int) (site.Result, error) {
		if vm {
			return p.With(own).Run(ctx, "run", "--rm", Small, "true")
		}
		return p.Run(ctx, "run", "--rm", Small, "true")
	})
	if err != nil {
		return err
	}
	d, absent, err := o.openDocker(ctx, own)
	if err != nil {
		return err
	}
	err = o.client(ctx, "docker run --rm", 0, absent, func(ctx context.Context, vm bool, _ int) (site.Result, error) {
		runtime := "runc"
		if vm {
			runtime = "bulkhead"
		}
		return d.Run(ctx, "run", "--rm", "--network", "none", "--runtime", runtime, Small, "true")
	})
	if err != nil {
		return err
	}
	c, absent, err := o.fronts(ctx)
	if err != nil {
		return err
	}
	o.containerd, o.containerdAbsent = c, absent
	return o.client(ctx, "ctr run --rm", 0, absent, func(ctx context.Context, vm bool, n int) (site.Result, error) {
		return c.Ctr(ctx, "run", "--rm", "--runtime", kinds[vm], Small, fmt.Sprint("once", n), "true")
	})
}

// kinds are containerd's names of the runtimes, in VMs and without.
var kinds = map[bool]string{true: "io.containerd.bulkhead.v2", false: "io.containerd.runc.v2"}

// client measures a client's command in turns with both runtimes. run gets a new number for each call.
func (o *ociBench) client(
	ctx context.Context, name string, aim float64, absent string, run func(ctx context.Context, vm bool, n int) (site.Result, error),
) error {
	n := 0
	one := func(vm bool, with string) contender {
		row := o.row(report.Row{
			Group: "oci", Name: name + with, Unit: "ms", Absent: absent, What: "the client's whole command of busybox true, without a network",
		}, nil)
		return contender{row: row, prepare: o.rest, sample: func(ctx context.Context) error {
			n++
			r, err := run(ctx, vm, n)
			if err == nil {
				row.Add(ms(r.Took))
			}
			return err
		}}
	}
	ours, theirs := one(true, ""), one(false, " (runc)")
	if err := o.pair(ctx, o.Runs, ours, theirs); err != nil {
		return err
	}
	o.ratio(report.Row{Group: "oci", Name: name + ", VM : runc", Unit: "×", Aim: aim}, ours.row, theirs.row)
	return nil
}

// wrapper returns a program that runs bulkhead-oci with the site's variables, which podman does not pass on.
func (o *ociBench) wrapper() (string, error) {
	path := filepath.Join(o.Dir, "bulkhead-oci")
	text := "#!/bin/sh\n"
	for _, variable := range o.site.Environ() {
		text += fmt.Sprintf("export '%s'\n", variable)
	}
	text += fmt.Sprintf("exec %s \"$@\"\n", o.own.Command[0])
	return path, os.WriteFile(path, []byte(text), 0o755) //nolint:gosec // a program
}

// openDocker opens dockerd with the small image, or returns why it is absent.
func (o *ociBench) openDocker(ctx context.Context, own string) (*runtimes.Docker, string, error) {
	dir, err := o.mkdir("dk")
	if err != nil {
		return nil, "", err
	}
	d, err := runtimes.OpenDocker(ctx, dir, own, o.site.Environ(), o.account(dir))
	if err != nil {
		return nil, err.Error(), ctx.Err()
	}
	o.served = append(o.served, d)             // Close closes it from here on
	archive := filepath.Join(dir, "image.tar") // this dockerd reads no archive in OCI's form
	img, err := busybox.Image(ctx, busybox.Binary)
	if err == nil {
		err = tarball.WriteToFile(archive, name.MustParseReference(Small), img)
	}
	if err != nil {
		return nil, "", err
	}
	for _, args := range [][]string{{"load", "--quiet", "--input", archive}, {"run", "--rm", "--network", "none", Small, "true"}} {
		if _, err := d.Run(ctx, args...); err != nil {
			return nil, err.Error(), ctx.Err()
		}
	}
	return d, "", nil
}

// fronts opens a containerd that finds the front of VMs, or returns why it is absent.
func (o *ociBench) fronts(ctx context.Context) (*containerd.Containerd, string, error) {
	dir, err := o.mkdir("cf")
	if err != nil {
		return nil, "", err
	}
	env := append(o.site.Environ(), "PATH="+o.Builds[0].Bin+":"+os.Getenv("PATH"))
	return o.openContainerd(ctx, containerd.Options{Dir: dir, Account: o.account(dir), Env: env})
}

// idlers is the number of idle containers. The pages of a program's file are private to a process if it is the only one.
const idlers = 2

// idle measures the processes of idle containers of containerd, which have all parts.
func (o *ociBench) idle(ctx context.Context) (err error) {
	c := o.containerd
	if o.containerdAbsent != "" {
		return nil // said beside ctr
	}
	for i := range idlers {
		id := fmt.Sprint("idle", i)
		if _, err := c.Ctr(ctx, "run", "--detach", "--runtime", kinds[true], Small, id, "sleep", "100000"); err != nil {
			return err
		}
		defer func() {
			_, killed := c.Ctr(ctx, "tasks", "delete", "--force", id)
			_, deleted := c.Ctr(ctx, "containers", "delete", id)
			err = errors.Join(err, killed, deleted)
		}()
	}
	if err := o.rest(ctx); err != nil {
		return err
	}
	before, err := procs.Below(procs.Root())
	if err != nil {
		return err
	}
	if err := procs.Wait(ctx, cpuWindow); err != nil {
		return err
	}
	for _, part := range parts {
		if err := o.weighPart(part.program, part.aim, before); err != nil {
			return err
		}
	}
	return nil
}

// parts are the programs of a container, with the aims for their private memory in MB.
var parts = []struct {
	program string
	aim     float64
}{
	{"bulkhead-surrogate", 1}, {"containerd-shim-bulkhead-v2", 8}, {"bulkhead-shim", 0}, {"bulkhead-share", 0}, {"qemu-system-x86_64", 0},
}

// weighPart adds rows with the memory of a program's processes, and with their use of the processor since before.
func (o *ociBench) weighPart(program string, aim float64, before []procs.Process) error {
	add := func(what, unit string, aim float64, meaning string) *report.Row {
		return o.row(report.Row{Group: "oci", Name: what + ", " + program, Unit: unit, Aim: aim, What: meaning}, nil)
	}
	all := add("PSS", "MB", 0, fmt.Sprintf("proportional memory, beside %d idle containers of ctr and the warm parent", idlers))
	own := add("private", "MB", aim, "the part of it that no other process shares")
	busy := add("CPU", "%", 0, fmt.Sprintf("of one core, idle for %s", cpuWindow))
	for _, p := range before {
		args := procs.Args(p.PID)
		if len(args) == 0 || filepath.Base(args[0]) != program || procs.HasThread(p.PID, site.WarmThread) {
			continue
		}
		after, err := procs.Get(p.PID)
		if err != nil {
			return err
		}
		shared, err := pss.Of(p.PID)
		if err != nil {
			return err
		}
		private, err := pss.Private(p.PID)
		if err != nil {
			return err
		}
		all.Add(mb(shared))
		own.Add(mb(private))
		busy.Add(float64(after.Ticks-p.Ticks) / procs.TicksPerSecond / cpuWindow.Seconds() * 100)
	}
	if len(all.Samples) != idlers {
		all.Failed = fmt.Sprintf("%d processes instead of %d", len(all.Samples), idlers)
	}
	return nil
}
