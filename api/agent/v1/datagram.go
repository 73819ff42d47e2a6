package agentv1

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Datagram is one of UDP's. A flow is what one client and one port of the pod have to do with
// each other: the host names it, by a number that it never uses again on a stream, and the guest
// has a socket for it. One without a Port says that the flow has ended.
type Datagram struct {
	Flow uint32
	Port uint16 // of the pod
	Data []byte
}

// MaxFlows is how many flows a stream has at once. A guest drops what goes beyond.
const MaxFlows = 1024

// DatagramHeader is how many bytes precede a datagram's data in a stream, and MaxDatagram how
// many its data are at most.
const (
	DatagramHeader = 8
	MaxDatagram    = 0xffff
)

// PutDatagram writes the header of a datagram with so many bytes of data.
func PutDatagram(header []byte, flow uint32, port uint16, size int) {
	binary.BigEndian.PutUint32(header, flow)
	binary.BigEndian.PutUint16(header[4:], port)
	binary.BigEndian.PutUint16(header[6:], uint16(size))
}

// ReadDatagram reads one, whose data are in buf, of MaxDatagram bytes.
func ReadDatagram(r io.Reader, buf []byte) (d Datagram, err error) {
	var header [DatagramHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return d, fmt.Errorf("read a datagram: %w", err)
	}
	d.Flow, d.Port = binary.BigEndian.Uint32(header[:]), binary.BigEndian.Uint16(header[4:])
	d.Data = buf[:binary.BigEndian.Uint16(header[6:])]
	if _, err := io.ReadFull(r, d.Data); err != nil {
		return d, fmt.Errorf("read a datagram: %w", unexpected(err))
	}
	return d, nil
}
