// Package rows measures. Each file has one group of the benchmark's rows.
package rows

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/bulkhead-project/bulkhead/tools/bench/account"
	"github.com/bulkhead-project/bulkhead/tools/bench/containerd"
	"github.com/bulkhead-project/bulkhead/tools/bench/payload"
	"github.com/bulkhead-project/bulkhead/tools/bench/podman"
	"github.com/bulkhead-project/bulkhead/tools/bench/report"
	"github.com/bulkhead-project/bulkhead/tools/bench/site"
)

// Small is the image of most rows.
const Small = "localhost/busybox:bench"

// Group measures some rows.
type Group struct {
	Name, About string
	Measure     func(ctx context.Context, b *Bench) error
	// Alone means that the group is measured in its own network, without other groups.
	Alone bool
}

// Groups returns all groups in the order in which they are measured.
func Groups() []Group {
	return []Group{
		{Name: "boot", About: "cold boot to the agent", Measure: boot},
		{Name: "clone", About: "clone to the agent's first answer", Measure: clone},
		{Name: "run", About: "run --rm of busybox true, beside podman", Measure: run},
		{Name: "accel", About: "run --rm of busybox true with KVM and emulated, where there is KVM", Measure: accelerators},
		{Name: "cpu", About: "processor time of a pod that runs true, beside podman and containerd", Measure: cpu},
		{Name: "burst", About: "1, 10 and 50 pods at once, beside podman and containerd", Measure: burst},
		{Name: "sustained", About: "run --rm for a minute, one and four at a time, beside podman and containerd", Measure: sustained},
		{Name: "exec", About: "exec of true, first and later, beside podman", Measure: exec},
		{Name: "idle", About: "start, memory and CPU of 1 and of 50 idle pods", Measure: idle},
		{Name: "pull", About: "pull and convert an image of 200 MB", Measure: pull},
		{Name: "disk", About: "read the image's and the scratch disk", Measure: disk},
		{Name: "share", About: "a directory of the host, beside virtiofsd and the host itself", Measure: shares},
		{Name: "root", About: "a container on a directory of the host, beside one on an image", Measure: roots},
		{Name: "oci", About: "bulkhead-oci and its clients, beside runc and crun, by itself", Measure: ociRuntimes, Alone: true},
		{Name: "cri", About: "a kubelet's calls on CNI's network, beside containerd, by itself", Measure: cri, Alone: true},
	}
}

// Bench has the settings and the state of a measurement. Groups run one after the other.
type Bench struct {
	Runs   int
	Pods   int           // of the group "idle", and the most of "burst", up to 50
	Window time.Duration // of a sample of the group "sustained"
	Dir    string        // for all files
	Image  string        // archive of the small image
	Reader string        // the program that reads disks
	Worker string        // the program that works with files
	Module string        // virtiofs.ko of the guest's kernel
	Builds []Build
	Report *report.Report
	// Progress receives the names of steps.
	Progress func(string)

	podman           *podman.Podman
	podmanAbsent     string
	containerd       *containerd.Containerd
	containerdAbsent string
	registry         *payload.Registry
	accounts         []*account.Account
	served           []interface{ Close(context.Context) error } // runtimes that run pods
}

// Build is one build of Bulkhead. Mark identifies its rows, and is empty for the first build.
type Build struct {
	Bin, Mark string

	sites map[bool]*site.Site // the key says whether the site forks no VM
}

// row adds a row to the report.
func (b *Bench) row(r report.Row, build *Build) *report.Row {
	if build != nil && build.Mark != "" {
		r.Name += " (" + build.Mark + ")"
		r.Aim = 0
	}
	b.Report.Rows = append(b.Report.Rows, &r)
	return &r
}

// site returns the site of a build. On first use it sets the site up with the small image and the template.
func (b *Bench) site(ctx context.Context, build *Build, clones bool) (*site.Site, error) {
	if s := build.sites[clones]; s != nil {
		return s, nil
	}
	b.Progress("set up the directories, image and template of " + build.Bin)
	n := 0
	for i := range b.Builds {
		n += len(b.Builds[i].sites)
	}
	dir, err := b.mkdir(fmt.Sprint("s", n))
	if err != nil {
		return nil, err
	}
	s, err := site.Open(site.Options{Bin: build.Bin, Dir: dir, Clones: clones, Account: b.account(dir)})
	if err != nil {
		return nil, err
	}
	if build.sites == nil {
		build.sites = map[bool]*site.Site{}
	}
	build.sites[clones] = s // Close closes it from here on
	if _, err := s.Run(ctx, "image", "load", "--quiet", "oci-archive:"+b.Image, Small); err != nil {
		return nil, err
	}
	if _, err := s.Run(ctx, "template", "build"); err != nil {
		return nil, err
	}
	return s, s.Prime(ctx, Small)
}

// account counts the processes of the programs in dir. It is nil if counting is impossible.
func (b *Bench) account(dir string) *account.Account {
	a, err := account.Open("bulkhead-bench-" + filepath.Base(b.Dir) + "-" + filepath.Base(dir))
	if err != nil {
		b.note(err.Error())
		return nil
	}
	b.accounts = append(b.accounts, a) // Close closes it from here on
	return a
}

func (b *Bench) mkdir(name string) (string, error) {
	dir := filepath.Join(b.Dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// baseline returns podman with the small image, or why it is absent.
func (b *Bench) baseline(ctx context.Context) (*podman.Podman, string, error) {
	if b.podman != nil || b.podmanAbsent != "" {
		return b.podman, b.podmanAbsent, nil
	}
	dir, err := b.mkdir("podman")
	if err != nil {
		return nil, "", err
	}
	p, err := podman.Open(ctx, dir, b.account(dir))
	if err == nil {
		b.podman = p // Close closes it from here on
		b.Report.Facts.Version("podman", p.Version)
		if err = p.Load(ctx, b.Image, Small); err == nil {
			_, err = p.Run(ctx, "run", "--rm", Small, "true")
		}
	}
	if err != nil {
		b.podmanAbsent = err.Error()
	}
	return b.podman, b.podmanAbsent, ctx.Err()
}

// inPodman samples one command of podman.
func (b *Bench) inPodman(p *podman.Podman, row *report.Row, args ...string) contender {
	first := b.Builds[0].sites[false]
	return contender{
		row:     row,
		prepare: func(ctx context.Context) error { return b.awaitIdle(ctx, first) },
		sample: func(ctx context.Context) error {
			r, err := p.Run(ctx, args...)
			if err == nil {
				row.Add(ms(r.Took))
			}
			return err
		},
	}
}

// awaitIdle waits for a site to come to rest, and notes it if it does not.
func (b *Bench) awaitIdle(ctx context.Context, s *site.Site) error {
	note, err := s.AwaitIdle(ctx)
	if note != "" {
		b.note(note)
	}
	return err
}

func (b *Bench) note(text string) {
	for _, n := range b.Report.Notes {
		if n == text {
			return
		}
	}
	b.Report.Notes = append(b.Report.Notes, text)
	b.Progress("note: " + text)
}

// Close ends everything that the groups have started and returns what is left.
func (b *Bench) Close(ctx context.Context) []string {
	var left []string
	failed := func(what string, err error) {
		if err != nil {
			left = append(left, what+": "+err.Error())
		}
	}
	for _, runtime := range b.served {
		failed("close a runtime", runtime.Close(ctx))
	}
	for i := range b.Builds {
		for _, s := range b.Builds[i].sites {
			files, err := s.Close(ctx)
			failed("close a site", err)
			left = append(left, files...)
		}
	}
	if b.podman != nil {
		failed("close podman", b.podman.Close(ctx))
	}
	if b.registry != nil {
		failed("close the registry", b.registry.Close())
	}
	left = append(left, site.Leftover(ctx, b.Dir)...)
	for _, a := range b.accounts {
		failed("remove the cgroup "+a.Path, a.Close(ctx))
	}
	return left
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
