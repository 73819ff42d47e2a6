package rows

import (
	"context"
	"strings"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/tools/bench/report"
)

// accelerators measures the start of a pod with KVM and emulated, in turns. It needs KVM.
func accelerators(ctx context.Context, b *Bench) error {
	absent, err := b.withoutKVM(ctx)
	if err != nil {
		return err
	}
	var all []contender
	for _, one := range []struct {
		name, what string
		accel      hypervisor.Accel
		flags      []string
	}{
		{"run --rm true with KVM", "the VM is a clone of the template, under KVM", hypervisor.KVM, nil},
		{"… cold", "the VM boots from its kernel, under KVM", hypervisor.KVM, []string{"--template=off"}},
		{"… emulated", "the VM is a fork of a warm parent, emulated", hypervisor.TCG, nil},
	} {
		row := report.Row{Group: "accel", Name: one.name, Unit: "ms", What: one.what}
		if one.accel == hypervisor.KVM {
			row.Absent = absent
		}
		c, err := b.runOf(ctx, &b.Builds[0], row, false, append(one.flags, "--accel="+string(one.accel))...)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	if err := b.pair(ctx, b.Runs, all...); err != nil {
		return err
	}
	b.ratio(report.Row{Group: "accel", Name: "cold : clone, with KVM", Unit: "×"}, all[1].row, all[0].row)
	b.ratio(report.Row{Group: "accel", Name: "emulated : with KVM", Unit: "×"}, all[2].row, all[0].row)
	return nil
}

// withoutKVM returns why no pod can run with KVM here, empty if one can.
func (b *Bench) withoutKVM(ctx context.Context) (absent string, err error) {
	s, err := b.site(ctx, &b.Builds[0], false)
	if err != nil {
		return "", err
	}
	if _, err := s.Run(ctx, "run", "--rm", "--quiet", "--accel="+string(hypervisor.KVM), Small, "true"); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "no KVM: " + strings.Split(err.Error(), "\n")[0], nil
	}
	return "", nil
}
