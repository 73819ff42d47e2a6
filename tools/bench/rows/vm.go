package rows

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/channel"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/hypervisor/template"
	"github.com/bulkhead-project/bulkhead/tools/bench/report"
)

// vmPatience bounds the life of one VM.
const vmPatience = 2 * time.Minute

// starter starts single VMs with the packages that a shim uses.
type starter struct {
	driver   hypervisor.Driver
	template *template.Template
	dir      string
}

// starter opens the template that the first build's pods are cloned from.
func (b *Bench) starter(ctx context.Context) (*starter, error) {
	s, err := b.site(ctx, &b.Builds[0], false)
	if err != nil {
		return nil, err
	}
	driver, err := qemu.New()
	if err != nil {
		return nil, err
	}
	store := template.Open(s.Roots, driver)
	infos, err := store.List()
	if err != nil || len(infos) == 0 {
		return nil, fmt.Errorf("find the template: %w", errors.Join(err, template.ErrMiss))
	}
	t, err := store.Get(ctx, infos[0].VM)
	if err != nil {
		return nil, err
	}
	m := &starter{driver: driver, template: t, dir: filepath.Join(b.Dir, "m")}
	if _, err := t.Memory(); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return m, nil
}

// start measures a VM from before its process starts to its agent's first answer. It adds the time and its phases
// to the row, and ends the VM.
func (m *starter) start(ctx context.Context, row *report.Row, cold bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, vmPatience)
	defer cancel()
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(m.dir)) }()
	o := hypervisor.Options{Dir: m.dir, Name: "bench"}
	var f hypervisor.Files
	launch := m.driver.Boot
	if !cold {
		launch = m.driver.Clone
		f.State = m.template.State()
		if f.Memory, err = m.template.Memory(); err != nil {
			return err
		}
	}
	began := time.Now()
	vm, err := launch(ctx, m.template.Info.VM, f, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vm.Kill(context.WithoutCancel(ctx))) }()
	running := time.Now()
	session, err := channel.Dial(ctx, vm.Connect, channel.Options{})
	if err != nil {
		return vm.Explain("reach the agent", err)
	}
	defer session.Close()
	reached := time.Now()
	if _, err := agentv1.NewClient(session.Open).Ping(ctx); err != nil {
		return vm.Explain("ask the agent", err)
	}
	answered := time.Now()
	row.Add(ms(answered.Sub(began)))
	for _, t := range vm.Timings() {
		row.AddPhase("QEMU: "+t.Phase, ms(t.Took))
	}
	row.AddPhase("QEMU in all", ms(running.Sub(began)))
	row.AddPhase("hello over the channel", ms(reached.Sub(running)))
	row.AddPhase("first answer", ms(answered.Sub(reached)))
	return nil
}

func boot(ctx context.Context, b *Bench) error {
	return b.startVMs(ctx, report.Row{
		Group: "boot", Name: "cold boot to agent", Unit: "ms",
		What: "QEMU's start from kernel and initrd, to the answer of a ping to the agent",
	}, true)
}

func clone(ctx context.Context, b *Bench) error {
	return b.startVMs(ctx, report.Row{
		Group: "clone", Name: "clone to first answer", Unit: "ms", Aim: 100,
		What: "QEMU's start as a clone of the template, with its memory loaded, to the answer of a ping to the agent",
	}, false)
}

func (b *Bench) startVMs(ctx context.Context, r report.Row, cold bool) (err error) {
	row := b.row(r, nil)
	m, err := b.starter(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.template.Close()) }()
	s, err := b.site(ctx, &b.Builds[0], false)
	if err != nil {
		return err
	}
	return b.pair(ctx, b.Runs, contender{
		row:     row,
		prepare: func(ctx context.Context) error { return b.awaitIdle(ctx, s) },
		sample:  func(ctx context.Context) error { return m.start(ctx, row, cold) },
	})
}
