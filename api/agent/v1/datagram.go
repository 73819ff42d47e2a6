package agentv1

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Datagram is a UDP datagram. A flow is the exchange between one client and one port of the pod. The host numbers
// the flow and never reuses the number on a stream; the guest has a socket for it. A datagram without a Port ends
// the flow.
type Datagram struct {
	Flow uint32
	Port uint16 // of the pod
	Data []byte
}

// MaxFlows is the maximum number of flows in a stream. A guest drops datagrams of more flows.
const MaxFlows = 1024

// DatagramHeader is the length of a datagram's header in a stream, and MaxDatagram the maximum length of its data,
// in bytes.
const (
	DatagramHeader = 8
	MaxDatagram    = 0xffff
)

// A stream of OpResolver carries DNS messages as Datagrams. The guest numbers its queries by Flow, and never reuses a
// number on a stream. Port is OverUDP or OverTCP. The host's answer has the same Flow and Port. It is empty if there is
// none. At most MaxQueries queries have no answer at the same time.
const (
	MaxQueries = 128
	OverUDP    = 1
	OverTCP    = 2
)

// DNSPort is the port of name servers, and DNSHeader the length of the header of a DNS message, in bytes.
const (
	DNSPort   = 53
	DNSHeader = 12
)

// PutDatagram writes the header of a datagram with size bytes of data.
func PutDatagram(header []byte, flow uint32, port uint16, size int) {
	binary.BigEndian.PutUint32(header, flow)
	binary.BigEndian.PutUint16(header[4:], port)
	binary.BigEndian.PutUint16(header[6:], uint16(size))
}

// ReadDatagram reads a datagram. Its data are in buf, which must have MaxDatagram bytes.
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
