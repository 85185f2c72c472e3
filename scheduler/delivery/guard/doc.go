// Package guard decides which addresses callbacks may go to.
//
// Whoever may write a job makes a replica send requests, from inside of the network that it runs in. So only public
// addresses are called. Others must be allowed: for everybody by the deployment, or for one tenant by an operator. What is
// judged is the address that is about to be connected to, after the name was resolved; so neither the spelling of a
// host nor what its name resolves to a moment later makes a difference.
//
//	Punctual's own API and database          never, whatever is allowed
//	allowed by the deployment or the tenant  yes; the metadata services of clouds only when named exactly (/32, /128)
//	metadata services                        no
//	private, loopback, link-local, reserved  no
//	everything else                          yes
//
// IPv4 addresses within IPv6 are judged as what they lead to where that is certain: IPv4-mapped ones, and those of the
// well-known NAT64 prefix 64:ff9b::/96, behind which a gateway sends to the IPv4 address that is embedded. In a network that has
// only IPv6 every IPv4 target has such an address, so to refuse all of them would refuse the public ones, and to allow
// the prefix would open the private ones. Of all other forms (IPv4-compatible, 6to4, Teredo, NAT64 under a prefix of the
// network's own) none is public, and they are refused whatever they embed.
package guard
