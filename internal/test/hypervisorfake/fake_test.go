package hypervisorfake_test

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisorfake"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisortest"
)

func TestConformance(t *testing.T) {
	m := hypervisor.VMConfig{
		Kernel: "/vmlinux", Accel: hypervisor.TCG, VCPUs: 1, Memory: 128, MaxMem: 1024,
		Slots: 4, Scratch: 1, Network: hypervisor.NetworkNone,
	}
	hypervisortest.Suite{Driver: &hypervisorfake.Driver{Serve: serve}, VM: m}.Run(t)
}

// serve runs the suite's commands, like guestinit.
func serve(g *hypervisorfake.Guest, conn net.Conn) {
	r := bufio.NewScanner(conn)
	for r.Scan() {
		args := append(strings.Fields(r.Text()), "", "", "", "")
		switch args[0] {
		case "echo":
			fmt.Fprintln(conn, args[1])
		case "set":
			g.Value = []byte(args[1])
			fmt.Fprintln(conn, args[1])
		case "get":
			fmt.Fprintln(conn, string(g.Value))
		case "memory":
			fmt.Fprintln(conn, g.Memory())
		case "off":
			g.PowerOff()
		case "panic":
			g.Crash("Kernel panic\n")
		case "size", "rebind":
			slot, err := strconv.Atoi(args[1])
			answer := "bound"
			if args[0] == "size" {
				answer = strconv.FormatInt(g.Size(slot), 10)
			} else if err == nil {
				err = g.Rebind(slot)
			}
			if err != nil {
				answer = err.Error()
			}
			fmt.Fprintln(conn, answer)
		case "read", "write":
			fmt.Fprintln(conn, access(g, args))
		}
	}
}

func access(g *hypervisorfake.Guest, args []string) string {
	slot, _ := strconv.Atoi(args[1])
	offset, _ := strconv.ParseInt(args[2], 10, 64)
	disk := g.Disk(slot)
	if args[0] == "write" {
		data, _ := hex.DecodeString(args[3])
		if info, err := disk.Stat(); err != nil || offset+int64(len(data)) > info.Size() {
			return "beyond the disk's end"
		}
		if _, err := disk.WriteAt(data, offset); err != nil {
			return err.Error()
		}
		return "written"
	}
	n, _ := strconv.Atoi(args[3])
	buf := make([]byte, n)
	if disk != nil {
		if _, err := disk.ReadAt(buf, offset); err != nil {
			return err.Error()
		}
	}
	return hex.EncodeToString(buf)
}
