package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/bulkhead-project/bulkhead/api/card"
	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// cardPort is the PCI port that cards are plugged into: q35's own bus accepts none in a running VM.
const cardPort = "cards"

// AddCards implements hypervisor.VM. All cards are functions of the port's one device. The guest is notified of the
// device when function 0 is added, so function 0 comes last.
func (v *vm) AddCards(ctx context.Context, taps []*os.File) error {
	const op = "plug network cards in"
	if !v.record.VM.Network.Tap() || len(taps) > card.Most {
		return v.failed("run", op, fmt.Errorf("%w: %d more on a network of kind %s", hypervisor.ErrInvalid, len(taps), v.record.VM.Network))
	}
	for number := len(taps) - 1; number >= 0; number-- {
		if err := v.addCard(ctx, number, taps[number]); err != nil {
			return v.failed("run", op, v.deathOr(fmt.Errorf("card %d: %w", number, err)))
		}
	}
	return nil
}

func (v *vm) addCard(ctx context.Context, number int, tap *os.File) error {
	name := "card" + strconv.Itoa(number)
	if err := v.qmp.ExecuteFile(ctx, "getfd", map[string]any{"fdname": name}, nil, tap); err != nil {
		return err
	}
	err := v.qmp.Execute(ctx, "netdev_add", map[string]any{"type": "tap", "id": name, "fd": name, "vhost": false}, nil)
	if err != nil { // QEMU has taken the descriptor otherwise
		return errors.Join(err, v.qmp.Execute(ctx, "closefd", map[string]any{"fdname": name}, nil))
	}
	return v.qmp.Execute(ctx, "device_add", map[string]any{
		"driver": "virtio-net-pci", "netdev": name, "mac": card.MAC(number), "disable-legacy": "on", "romfile": "",
		"bus": cardPort, "addr": "0." + strconv.Itoa(number), "multifunction": true,
	}, nil)
}
