// Package seal encrypts payloads as they are written to the database, and opens them as they are read: what callers
// and targets give, such as bodies, results, responses and errors that quote them. The types of this package stand for
// payloads among the arguments of statements, and among the places that rows are scanned to; every connection encrypts
// and opens them (Register). So a statement reads the same whether payloads are sealed or not.
//
// A sealed value is a text that says so itself, in whatever column it stands:
//
//	punctual-sealed-1:KIND:LENGTH:KEY:CIPHERTEXT
//
// KIND is o, a, s, n or t for JSON that is an object, an array, a string or anything else, and for a text; LENGTH is
// that of the payload in bytes; KEY is the id of a data key (package vault), which has encrypted the payload bound to
// KIND and LENGTH. It does not depend on its row, so SQL copies it as it is: from a dated run to a run, its dead letter
// and its replay. What SQL has to know of a payload is in front of the ciphertext: punctual.payload_bytes and
// punctual.payload_type read it. In a column of JSON the text is a JSON string.
//
// Nobody can write a payload that is taken for a sealed one: what begins like one gets punctual-sealed-0: in front.
//
// The third form is punctual-sealed-m:, made by SQL: the parts of a body, sealed or not, from which Bytes puts the body
// together (merge.go).
package seal
