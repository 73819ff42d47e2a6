package rows

import (
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"

	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/internal/ociimage"
	"github.com/bulkhead-project/bulkhead/tools/bench/payload"
	"github.com/bulkhead-project/bulkhead/tools/bench/report"
	"github.com/bulkhead-project/bulkhead/tools/bench/site"
	"github.com/bulkhead-project/bulkhead/tools/bench/virtiofsd"
)

// works are the measured works in a shared directory, in this order, by the worker's verbs.
var works = []struct {
	name, what, unit, verb string
	cold                   bool
	aim                    float64 // relative to virtiofsd
}{
	{"make", "2,000 files of 1 KiB made, one after the other", "files/s", "make", false, 1.5},
	{"walk", "a walk of these with their attributes, the guest's caches empty", "entries/s", "walk", true, 1.5},
	{"walk again", "once more, right after", "entries/s", "walk", false, 1.5},
	{"read small", "these opened and read, the guest's caches empty", "files/s", "read", true, 1.5},
	{"clone", "git clone --no-hardlinks of a bare repository in the directory, of this project", "files/s", "clone", true, 1.5},
	{"tar", "busybox tar -x of an archive in the directory, of this project", "files/s", "tar", true, 1.5},
	{"write", "64 MiB written, 128 KiB at a time, and closed", "MB/s", "seqwrite", false, 0.7},
	{"read", "64 MiB read, 128 KiB at a time, the guest's caches empty", "MB/s", "seqread", true, 0.7},
	{"write 4 KiB", "1,000 pages written at random", "writes/s", "randwrite", false, 0.7},
	{"read 4 KiB", "1,000 pages read at random, the guest's caches empty", "reads/s", "randread", true, 0.7},
	{"mmap", "64 MiB read through a mapping, the guest's caches empty", "MB/s", "mmap", true, 0.7},
}

// sharer does works in a directory of the host.
type sharer struct {
	name, how string
	dir       string // on the host
	guest     bool   // has its own caches, which are emptied before each work
	at        string // its path of the directory
	do        func(ctx context.Context, words ...string) (string, error)
	rows      []*report.Row
	absent    string
}

func shares(ctx context.Context, b *Bench) error {
	base, err := b.mkdir("share")
	if err != nil {
		return err
	}
	tools, err := payload.Tools(b.Worker)
	if err != nil {
		return err
	}
	tree, err := payload.MakeTree(ctx, filepath.Join(base, "tree"))
	if err != nil {
		return err
	}
	var all []*sharer
	for i := range b.Builds {
		s, err := b.inPod(ctx, &b.Builds[i], base, tools)
		if err != nil {
			return err
		}
		all = append(all, s)
	}
	rival, err := b.inVirtiofsd(ctx, base, tools)
	if err != nil {
		return err
	}
	all = append(all, rival, b.onHost(filepath.Join(base, "host")))
	for _, s := range all {
		if err := tree.CopyTo(ctx, s.dir); err != nil {
			return err
		}
		for _, w := range works {
			s.rows = append(s.rows, b.row(report.Row{
				Group: "share", Name: w.name + ", " + s.name, Unit: w.unit, Higher: true, Absent: s.absent, What: w.what + ", " + s.how,
			}, nil))
		}
	}
	for i := range works {
		var turn []contender
		for _, s := range all {
			turn = append(turn, contender{
				row:     s.rows[i],
				prepare: func(ctx context.Context) error { return tree.Tidy(ctx, s.dir, works[i].verb) },
				sample:  func(ctx context.Context) error { return s.sample(ctx, i, tree.Files) },
			})
		}
		if err := b.pair(ctx, b.Runs, turn...); err != nil {
			return err
		}
		for _, s := range all[:len(b.Builds)] {
			name := fmt.Sprintf("%s, %s : virtiofsd's", works[i].name, s.name)
			b.ratio(report.Row{Group: "share", Name: name, Unit: "×", Higher: true, Aim: works[i].aim}, s.rows[i], rival.rows[i])
		}
	}
	return nil
}

// sample does one work, and adds the number of things that it did per second.
func (s *sharer) sample(ctx context.Context, i, files int) error {
	var words []string
	if works[i].cold && s.guest {
		words = append(words, "-drop")
	}
	said, err := s.do(ctx, append(words, s.at, works[i].verb)...)
	if err != nil {
		return err
	}
	var n, ns float64
	if _, err := fmt.Sscan(said, &n, &ns); err != nil || ns <= 0 {
		return fmt.Errorf("it says %q: %w", said, err)
	}
	switch works[i].unit {
	case "MB/s":
		n /= 1e6
	case "writes/s", "reads/s":
		n /= 4 << 10
	}
	if verb := works[i].verb; verb == "clone" || verb == "tar" {
		n = float64(files)
	}
	s.rows[i].Add(n / (ns / 1e9))
	return nil
}

// onHost works on this host directly.
func (b *Bench) onHost(dir string) *sharer {
	return &sharer{name: "host", how: "on the host itself", dir: dir, at: dir, do: func(ctx context.Context, words ...string) (string, error) {
		r, err := site.Time(osexec.CommandContext(ctx, b.Worker, words...), nil)
		return r.Out, err
	}}
}

// inPod works in a pod of a build, with a directory of the host.
func (b *Bench) inPod(ctx context.Context, build *Build, base string, tools []ociimage.Entry) (*sharer, error) {
	name := "ours"
	if build.Mark != "" {
		name = build.Mark
	}
	s, err := b.site(ctx, build, false)
	if err != nil {
		return nil, err
	}
	img, err := payload.ToolsImage(ctx, tools)
	if err != nil {
		return nil, err
	}
	registry, err := payload.Serve(ctx, img)
	if err != nil {
		return nil, err
	}
	defer registry.Close()
	dir := filepath.Join(base, name)
	pod, err := s.Write("share", site.WithHostPath("share", registry.Reference, dir, "sleep", "100000"))
	if err != nil {
		return nil, err
	}
	if _, err := s.Start(ctx, pod); err != nil {
		return nil, err
	}
	return &sharer{
		name: name, how: "in a pod, hostPath", dir: dir, guest: true, at: "/data",
		do: func(ctx context.Context, words ...string) (string, error) {
			r, err := s.Run(ctx, append([]string{"exec", "share", "--", "/" + payload.Worker}, words...)...)
			return r.Out, err
		},
	}, nil
}

// inVirtiofsd works in a VM with virtiofsd, or says why there is none.
func (b *Bench) inVirtiofsd(ctx context.Context, base string, tools []ociimage.Entry) (*sharer, error) {
	s := &sharer{name: "virtiofsd", how: "in a VM with virtiofsd and its defaults", dir: filepath.Join(base, "v"), guest: true, at: "/shared"}
	dir, err := b.mkdir("v")
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return nil, err
	}
	v, err := virtiofsd.Open(ctx, virtiofsd.Options{
		Dir: dir, Shared: s.dir, Guest: filepath.Join(b.Builds[0].Bin, "guest"), Module: b.Module, CPU: qemu.EmulatedCPU,
		Tools: tools, Program: payload.Worker,
	})
	if err != nil {
		s.absent = err.Error()
		return s, ctx.Err()
	}
	b.served = append(b.served, v) // Close closes it from here on
	s.do = func(ctx context.Context, words ...string) (string, error) { return v.Do(ctx, strings.Join(words, " ")) }
	return s, nil
}
