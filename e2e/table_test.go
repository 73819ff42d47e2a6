package e2e

import (
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strings"
)

// cell is one row of the table: the victim to kill when a command of the scenario reaches the point.
type cell struct{ scenario, point, victim string }

func (c cell) String() string { return c.scenario + "/" + c.point + "/" + c.victim }

// The victims by their letters in the table.
var victims = map[rune]string{
	'c': "cli", 's': "engine", 'h': "shim", 'q': "qemu", 'p': "parent", 'u': "surrogate", 'v': "share",
}

// points has the points of each scenario in order, with the victims that exist by then.
var points = []struct {
	scenario string
	points   [][2]string
}{
	// A foreground run that removes its pod.
	{"run", [][2]string{
		{"cli.sending", "cs"}, {"cli.answered", "cs"}, {"pod.saved", "cs"},
		{"run.reserve", "cs"}, {"run.store", "cs"},
		{"journal.network", "cs"}, {"run.network", "cs"}, {"journal.shim", "cs"},
		{"journal.cgroup", "cs"}, {"cgroup.made", "cs"},
		{"shim.uid", "cs"}, {"shim.recorded", "cs"}, {"shim.spawned", "csh"},
		{"shim.locked", "csh"}, {"shim.prepared", "csh"}, {"qemu.spawned", "cshq"},
		{"shim.opened", "cshq"}, {"shim.served", "cshq"}, {"machine.up", "cshq"}, {"machine.recorded", "cshq"},
		{"run.shim", "cshq"}, {"run.scratch", "cshq"}, {"sandbox.created", "cshq"}, {"run.create", "cshq"},
		{"sandbox.starting", "cshq"}, {"sandbox.configured", "cshq"}, {"sandbox.running", "cshq"},
		{"run.start", "cshq"}, {"run.publish", "cshq"}, {"run.ready", "cshq"},
		{"container.recorded", "cshq"}, {"container.pinned", "cshq"}, {"container.bundled", "cshq"},
		{"container.locked", "cshq"}, {"container.sent", "cshq"}, {"task.laid", "cshq"}, {"disk.attached", "cshq"},
		{"disk.mounted", "cshq"}, {"task.recorded", "cshq"}, {"task.created", "cshq"}, {"container.created", "cshq"},
		{"task.started", "cshq"}, {"container.started", "cshq"},
	}},
	// The same with a disk of the host in a slot of the VM.
	{"block", [][2]string{
		{"container.recorded", "cshq"}, {"container.locked", "cshq"}, {"container.sent", "cshq"}, {"task.laid", "cshq"},
		{"volume.attached", "cshq"}, {"volume.mounted", "cshq"}, {"task.recorded", "cshq"}, {"task.created", "cshq"},
		{"container.created", "cshq"}, {"container.started", "cshq"},
	}},
	// The same with a forked VM.
	{"forked", [][2]string{
		{"run.store", "csp"}, {"shim.recorded", "csp"}, {"shim.spawned", "cshp"}, {"scratch.copied", "csp"},
		{"shim.copied", "cshqp"}, {"shim.locked", "cshqp"}, {"shim.prepared", "cshqp"}, {"shim.opened", "cshqp"},
		{"shim.served", "cshqp"}, {"machine.up", "cshqp"}, {"machine.recorded", "cshq"}, {"run.shim", "cshq"},
		{"run.scratch", "cshq"}, {"sandbox.created", "cshq"}, {"sandbox.configured", "cshqp"}, {"run.ready", "cshqp"},
	}},
	// The creation of a warm VM.
	{"warm", [][2]string{{"warm.started", "sp"}, {"warm.rehearsed", "sp"}, {"warm.parked", "sp"}, {"warm.proven", "sp"}}},
	// The stop of a pod.
	{"stop", [][2]string{
		{"cli.sending", "cs"}, {"stop.killed", "cshq"}, {"undo.shim", "cshq"}, {"machine.killed", "csh"},
		{"sandbox.stopped", "csh"}, {"sandbox.removed", "csh"}, {"shim.ending", "csh"}, {"undone.shim", "cs"},
		{"undo.network", "cs"}, {"undone.network", "cs"}, {"stop.undone", "cs"}, {"stop.recorded", "cs"}, {"pod.ended", "cs"},
	}},
	// The start of a stopped pod, which takes over the disk of its last VM.
	{"start", [][2]string{
		{"journal.scratch", "cs"}, {"scratch.taken", "cs"}, {"shim.recorded", "cs"}, {"qemu.spawned", "cshq"},
		{"run.scratch", "cshq"}, {"sandbox.configured", "cshq"}, {"run.start", "cshq"}, {"run.ready", "cshq"},
	}},
	// The removal of a running pod.
	{"rm", [][2]string{
		{"stop.killed", "cshq"}, {"undo.shim", "cshq"}, {"machine.killed", "csh"}, {"stop.recorded", "cs"}, {"pod.ended", "cs"},
		{"remove.marked", "cs"}, {"unwind.undone", "cs"}, {"unwind.unpinned", "cs"}, {"unwind.freed", "cs"},
		{"unwind.journal", "cs"}, {"unwind.state", "cs"}, {"remove.unwound", "cs"}, {"remove.released", "cs"}, {"pod.deleted", "cs"},
	}},
	// Another shim for a pod with a killed shim.
	{"adopt", [][2]string{
		{"shim.spawned", "shq"}, {"shim.locked", "shq"}, {"shim.prepared", "shq"}, {"shim.opened", "shq"}, {"shim.served", "shq"},
	}},
	// Cleanup after an engine that was killed during a start.
	{"reap", [][2]string{
		{"undo.shim", "cs"}, {"machine.killed", "csh"}, {"undone.shim", "cs"}, {"undo.network", "cs"}, {"undone.network", "cs"},
		{"unwind.undone", "cs"}, {"unwind.unpinned", "cs"}, {"unwind.freed", "cs"}, {"unwind.journal", "cs"}, {"unwind.state", "cs"},
	}},
	// The life of a container of bulkhead-oci. "cli" is the runtime's command.
	{"oci-create", [][2]string{
		{"oci.reserved", "cs"}, {"oci.surrogate", "csu"}, {"run.reserve", "csu"}, {"shim.spawned", "csu"}, {"run.ready", "cshqu"},
		{"oci.pod", "cshqu"}, {"container.sent", "cshquv"}, {"oci.container", "cshquv"}, {"oci.attached", "cshquv"},
	}},
	{"oci-start", [][2]string{{"oci.adopted", "cshquv"}, {"oci.started", "cshquv"}}},
	{"oci-delete", [][2]string{
		{"oci.ended", "cshqv"}, {"stop.killed", "cs"}, {"remove.marked", "cs"}, {"oci.removed", "cs"}, {"oci.ungrouped", "cs"},
	}},
	// The life of a named volume.
	{"make-volume", [][2]string{{"volume.begun", "cs"}, {"volume.made", "cs"}, {"volume.named", "cs"}}},
	{"remove-volume", [][2]string{{"volume.renamed", "cs"}}},
}

// table returns all cells.
func table() (all []cell) {
	for _, s := range points {
		for _, p := range s.points {
			if os.Geteuid() != 0 && (p[0] == "shim.uid" || strings.HasPrefix(s.scenario, "oci-")) {
				continue // an ordinary user has no others to give away, and bulkhead-oci needs root
			}
			for _, letter := range p[1] {
				all = append(all, cell{s.scenario, p[0], victims[letter]})
			}
		}
	}
	return all
}

// sample returns the day's part of the table. Successive days cover the whole table, and each part is spread over
// it.
func sample(all []cell, day, size int) []cell {
	order := slices.Clone(all)
	slices.SortStableFunc(order, func(a, b cell) int { return int(hash(a)>>1) - int(hash(b)>>1) })
	parts := max(1, (len(order)+size-1)/size)
	var some []cell
	for i, c := range order {
		if i%parts == day%parts {
			some = append(some, c)
		}
	}
	slices.SortStableFunc(some, func(a, b cell) int { return slices.Index(all, a) - slices.Index(all, b) })
	return some
}

func hash(c cell) uint32 {
	h := fnv.New32a()
	fmt.Fprint(h, c)
	return h.Sum32()
}

func names(cells []cell) string {
	var list []string
	for _, c := range cells {
		list = append(list, c.String())
	}
	return strings.Join(list, " ")
}
